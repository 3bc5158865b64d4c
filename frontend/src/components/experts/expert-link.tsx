/** An expert's id and label, linked to its page, with a button that adds it to the tray. */

import { useQueryClient } from "@tanstack/react-query";
import { Link } from "react-router";

import type { AutomaticLabel } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { definitionHandlers } from "@/components/terms/term";
import { useTips } from "@/components/tokens/tip-layer";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";

import { AutomaticLabelText } from "./automatic-label";

interface ExpertLabelProps {
  readonly label: string | null;
  /** Shown if there is no user label, marked as automatic, and as weak if its score is low. */
  readonly automatic?: AutomaticLabel | null | undefined;
  /** Shown if there is neither. */
  readonly topTokens?: readonly string[];
  /** Number that a screen reader reads if there is no user label. */
  readonly expert?: number;
}

function NoLabel() {
  return (
    <span className="dim" {...definitionHandlers("no_label", useTips(), useQueryClient())}>
      no label yet
    </span>
  );
}

/** An expert's name, the same on every page: the user label, else the automatic one, else its top tokens. */
export function ExpertLabel({ expert, label, automatic = null, topTokens = [] }: ExpertLabelProps) {
  if (label !== null) return label;
  return (
    <>
      {automatic !== null ? (
        <AutomaticLabelText automatic={automatic} />
      ) : topTokens.length === 0 ? (
        <NoLabel />
      ) : (
        <span className="chips">
          {topTokens.slice(0, 3).map((text, i) => (
            <TokenChip key={i} text={text} />
          ))}
        </span>
      )}
      {expert !== undefined && <span className="sr">Expert {expert}</span>}
    </>
  );
}

interface ExpertLinkProps extends ExpertLabelProps {
  readonly expert: number;
  /** False in tables that have a separate column for the button. */
  readonly withPlus?: boolean;
}

export function ExpertLink({ expert, label, automatic, topTokens, withPlus = true }: ExpertLinkProps) {
  const links = usePageLinks();
  return (
    <span className="expert-link">
      <span className="mono id">{expert}</span>
      <Link className="lab" to={links.expert(expert)}>
        <ExpertLabel {...{ label, automatic, expert }} {...(topTokens !== undefined && { topTokens })} />
      </Link>
      {withPlus && <PlusButton expert={expert} />}
    </span>
  );
}
