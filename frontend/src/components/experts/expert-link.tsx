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
  /** Shown if there is no clear label. */
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

export function ExpertLabel({ expert, ...shown }: ExpertLabelProps) {
  return (
    <>
      <ShownLabel {...shown} />
      {shown.label === null && expert !== undefined && <span className="sr">Expert {expert}</span>}
    </>
  );
}

function ShownLabel({ label, automatic = null, topTokens = [] }: ExpertLabelProps) {
  if (label !== null) return label;
  if (automatic !== null && (automatic.is_clear || topTokens.length === 0))
    return <AutomaticLabelText automatic={automatic} />;
  if (topTokens.length === 0) return <NoLabel />;
  return (
    <span className="chips">
      {topTokens.slice(0, 3).map((text, i) => (
        <TokenChip key={i} text={text} />
      ))}
    </span>
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
        <ExpertLabel
          label={label}
          automatic={automatic}
          {...(topTokens !== undefined && { topTokens })}
          expert={expert}
        />
      </Link>
      {withPlus && <PlusButton expert={expert} />}
    </span>
  );
}
