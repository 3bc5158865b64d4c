/** Where a context of an expert goes as a prompt: to Routing, or to Steering with the expert in the tray. */

import { useCallback } from "react";

import type { Context } from "@/api/types";
import { usePageLinks } from "@/components/links";
import type { PromptLinks } from "@/components/tokens/concordance";
import { useTray } from "@/components/tray/tray-context";
import { formatEdits, newEdit } from "@/lib/edits";
import { joinTokens } from "@/lib/kwic";
import { withEdit } from "@/lib/tray";

export function usePromptLinks(expert: number): (context: Context) => PromptLinks {
  const links = usePageLinks();
  const tray = useTray();
  // What the tray holds comes along, and how strong the expert is there already stays.
  const edits = formatEdits(tray.has(expert) ? tray.edits : withEdit(tray.edits, newEdit(expert)));
  return useCallback(
    (context) => {
      const prompt = joinTokens(context);
      return { routing: links.page("routing", { prompt }), steering: links.page("steering", { prompt, edits }) };
    },
    [links, edits],
  );
}
