/** Links that use an example as a prompt in Routing, or in Steering with the expert in the tray. */

import { useCallback } from "react";

import type { Context } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import type { PromptLinks } from "@/components/tokens/concordance";
import { useTray } from "@/components/tray/tray-context";
import { formatEdits, newEdit } from "@/lib/edits/edits";
import { withEdit } from "@/lib/edits/tray";
import { joinTokens } from "@/lib/text/kwic";

export function usePromptLinks(expert: number): (context: Context) => PromptLinks {
  const links = usePageLinks();
  const tray = useTray();
  // The tray's edits are kept, including the expert's own if there is one.
  const edits = formatEdits(tray.has(expert) ? tray.edits : withEdit(tray.edits, newEdit(expert)));
  return useCallback(
    (context) => {
      const prompt = joinTokens(context);
      return { routing: links.page("routing", { prompt }), steering: links.page("steering", { prompt, edits }) };
    },
    [links, edits],
  );
}
