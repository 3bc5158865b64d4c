/** Placeholder of what a prompt leads to; it says whether the language model is loaded first. */

import { useQuery } from "@tanstack/react-query";

import { healthQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { LoadingState } from "@/components/ui/states";

export function PromptLoading({ run, label }: { readonly run: RunSummary; readonly label: string }) {
  const { data } = useQuery(healthQuery);
  const isFirst = data?.language_models.every(({ name }) => name !== run.language_model) === true;
  return (
    <div className="prompted-empty">
      <LoadingState label={isFirst ? `${label}; the language model is loaded first` : label} rows={14} />
    </div>
  );
}
