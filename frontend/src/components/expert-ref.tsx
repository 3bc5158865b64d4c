/** An expert by id and label, linked to its page, with the button that puts it in the tray. */

import { Link } from "react-router";

import type { AutomaticLabel } from "@/api/types";

import { AutomaticLabelText } from "./automatic-label";
import { usePageLinks } from "./links";
import { TokenChip } from "./tokens/token-chip";
import { PlusButton } from "./tray/plus-button";

interface ExpertLabelProps {
  readonly label: string | null;
  /** Shown, and marked, where no person has given a label. */
  readonly automatic?: AutomaticLabel | null | undefined;
  /** Stand in where there is no label at all. */
  readonly topTokens?: readonly string[];
}

export function ExpertLabel({ label, automatic = null, topTokens = [] }: ExpertLabelProps) {
  if (label !== null) return label;
  if (automatic !== null) return <AutomaticLabelText automatic={automatic} />;
  if (topTokens.length === 0) return <span className="dim">no label yet</span>;
  return (
    <span className="chips">
      {topTokens.slice(0, 3).map((text, i) => (
        <TokenChip key={i} text={text} />
      ))}
    </span>
  );
}

interface ExpertRefProps extends ExpertLabelProps {
  readonly expert: number;
  /** Without it where the list has a column for the button. */
  readonly withPlus?: boolean;
}

export function ExpertRef({ expert, label, automatic, topTokens, withPlus = true }: ExpertRefProps) {
  const links = usePageLinks();
  return (
    <span className="expert-ref">
      <span className="mono id">{expert}</span>
      <Link className="lab" to={links.expert(expert)}>
        <ExpertLabel label={label} automatic={automatic} {...(topTokens !== undefined && { topTokens })} />
        {label === null && <span className="sr">Expert {expert}</span>}
      </Link>
      {withPlus && <PlusButton expert={expert} />}
    </span>
  );
}
