/** An expert's id and label, linked to its page, with a button that adds it to the tray. */

import { Link } from "react-router";

import type { AutomaticLabel } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { definitionHandlers } from "@/components/terms/term";
import { useTips } from "@/components/tokens/tip-layer";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";

import { AutomaticLabelText, shownAutomatic } from "./automatic-label";

interface ExpertLabelProps {
  readonly label: string | null;
  /** Shown, marked as automatic, if there is no user label and its score is high enough. */
  readonly automatic?: AutomaticLabel | null | undefined;
  /** Shown if there is no label at all. */
  readonly topTokens?: readonly string[];
}

/** A weak automatic label is hidden, which differs from having none. Labels are inside links, so this is no link. */
function NoLabel({ automatic }: Pick<ExpertLabelProps, "automatic">) {
  const [id, text] =
    automatic == null ? (["no_label", "no label yet"] as const) : (["weak_label", "no clear label"] as const);
  return (
    <span className="dim" {...definitionHandlers(id, useTips())}>
      {text}
    </span>
  );
}

export function ExpertLabel({ label, automatic = null, topTokens = [] }: ExpertLabelProps) {
  if (label !== null) return label;
  const shown = shownAutomatic(automatic);
  if (shown !== null) return <AutomaticLabelText automatic={shown} />;
  if (topTokens.length === 0) return <NoLabel automatic={automatic} />;
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
        <ExpertLabel label={label} automatic={automatic} {...(topTokens !== undefined && { topTokens })} />
        {label === null && <span className="sr">Expert {expert}</span>}
      </Link>
      {withPlus && <PlusButton expert={expert} />}
    </span>
  );
}
