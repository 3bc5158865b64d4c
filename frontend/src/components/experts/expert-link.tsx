/** How an expert is named, the same on every page: its label, an automatic one, and the link to its page. */

import { useQueryClient } from "@tanstack/react-query";
import { Link } from "react-router";

import type { AutomaticLabel } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { definitionHandlers, Term } from "@/components/terms/term";
import { distinctWords } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/tray-context";
import type { flagParam, UrlState } from "@/hooks/use-url-state";
import { sequentialStep } from "@/lib/scales/colour-scale";
import { formatFixed, formatPercent } from "@/lib/text/format";
import { visibleText } from "@/lib/text/token-text";

/** The label, or null if the server says that it is too weak for a name. */
export function shownAutomatic(automatic: AutomaticLabel | null | undefined): AutomaticLabel | null {
  return automatic?.is_clear === true ? automatic : null;
}

/** The language to which a rule is limited, e.g. of `English: “was”`. */
export const LANGUAGE = /^(\p{Lu}\p{L}+(?:(?:, | or )\p{Lu}\p{L}+)*): /u;

const kindOf = ({ weaknesses }: AutomaticLabel) =>
  weaknesses.length === 0 ? "automatic label" : `weak automatic label (${weaknesses.join(", ")})`;

export function describeAutomaticLabel(automatic: AutomaticLabel): string {
  const { label, labeller, balanced_accuracy: accuracy, precision, recall, test_examples, f1 } = automatic;
  const limit = LANGUAGE.exec(label)?.[1];
  return [
    `${kindOf(automatic)} ${labeller === "features" ? "from its top examples" : `by ${labeller}`}`,
    ...(f1 === null
      ? []
      : [
          `on held-out tokens F1 = ${formatFixed(f1)}, precision ${labelShare(precision)}, recall ${labelShare(recall)}`,
        ]),
    accuracy === null ? "not tested" : `balanced accuracy ${formatFixed(accuracy)} on ${test_examples} examples`,
    ...(limit === undefined ? [] : [`“${limit}:” means only in ${limit} text`]),
  ].join("; ");
}

/** Precision or recall, as text. */
export const labelShare = (value: number | null): string =>
  value === null ? "unknown" : `${formatPercent(value, 0)} %`;

/** Kind and score of an automatic label, as text. */
export const automaticLabelScore = (automatic: AutomaticLabel) =>
  `${kindOf(automatic)}, ${automatic.f1 === null ? "not tested on tokens" : `F1 = ${formatFixed(automatic.f1)}`}`;

export function AutomaticLabelText({ automatic }: { readonly automatic: AutomaticLabel }) {
  const { f1 } = automatic;
  return (
    <span className={nameTone(null, automatic)} title={`${automatic.label}\n${describeAutomaticLabel(automatic)}`}>
      <span>{automatic.label}</span>{" "}
      <span className="auto-mark">
        <span aria-hidden="true">auto{f1 !== null && ` ${formatFixed(f1)}`}</span>
        <span className="sr">({automaticLabelScore(automatic)})</span>
      </span>
    </span>
  );
}

export function ActivationCell({ value, largest }: { readonly value: number; readonly largest: number }) {
  return <span className={`cf s${Math.max(1, sequentialStep(value, largest))}`}>{value.toFixed(2)}</span>;
}

interface ExpertLabelProps {
  readonly label: string | null;
  /** Shown if there is no user label, marked as automatic, and as weak if its score is low. */
  readonly automatic?: AutomaticLabel | null | undefined;
  /** Shown if there is neither. */
  readonly topTokens?: readonly (string | { readonly text: string })[];
  /** Number that a screen reader reads if there is no user label. */
  readonly expert?: number;
}

function NoLabel() {
  return (
    <span className={nameTone(null, null)} {...definitionHandlers("no_label", useQueryClient())}>
      no label yet
    </span>
  );
}

/** A label with a lower F1 says next to nothing about where the expert fires, so it is no name. */
const MIN_F1 = 0.05;

/** The automatic label, or null if it is no name. */
export const namingLabel = (automatic: AutomaticLabel | null) =>
  (automatic?.f1 ?? MIN_F1) < MIN_F1 ? null : automatic;

/** Whether the label is weak, or there is none. */
export const isWeak = (label: string | null, automatic: AutomaticLabel | null) =>
  label === null && namingLabel(automatic)?.is_clear !== true;

/** The tone of a name: black for a user label, grey for an automatic one, in italics if that is weak or there is none. */
export const nameTone = (label: string | null, automatic: AutomaticLabel | null) =>
  label !== null ? undefined : isWeak(label, automatic) ? "auto-label weak" : "auto-label";

/** What marks labels in tables. */
export const LabelNote = () => (
  <>
    <span className="auto-mark">auto 0.43</span> <Term id="automatic_label">automatic label</Term>, F1 0.43 on held-out
    tokens; without a number, not tested; <ItalicNote />
  </>
);

/** What italics mean. */
export const ItalicNote = () => (
  <>
    <i>italic</i>: a <Term id="weak_label">weak label</Term> (low accuracy, precision or recall) or none
  </>
);

/** Whether experts with a label that says what they fire on come first. */
export function WeakLast({ params: { mixed }, setParams }: UrlState<{ readonly mixed: typeof flagParam }>) {
  return (
    <label className="filter">
      <input type="checkbox" checked={!mixed} onChange={() => setParams({ mixed: !mixed })} />
      <i {...definitionHandlers("weak_label", useQueryClient())}>Weak labels</i> last
    </label>
  );
}

/** In place of a label: the tokens on which the expert fires most often, marked as such. */
export function TokenName({ tokens }: { readonly tokens: NonNullable<ExpertLabelProps["topTokens"]> }) {
  const words = distinctWords(tokens.map((token) => (typeof token === "string" ? { text: token } : token)));
  const quoted = words.slice(0, 3).map(({ text }) => `“${visibleText(text.trim() || text)}”`);
  return (
    <span className={nameTone(null, null)}>
      <span>{quoted.join(", ")}</span> <span className="auto-mark">tokens</span>
    </span>
  );
}

/** An expert's name, the same on every page: the user label, else the automatic one, else its top tokens. */
export function ExpertLabel({ expert, label, automatic: given = null, topTokens = [] }: ExpertLabelProps) {
  if (label !== null) return label;
  const automatic = namingLabel(given);
  return (
    <>
      {automatic !== null ? (
        <AutomaticLabelText automatic={automatic} />
      ) : topTokens.length === 0 ? (
        <NoLabel />
      ) : (
        <TokenName tokens={topTokens} />
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
      <Link className="lab cut" to={links.expert(expert)}>
        <ExpertLabel {...{ label, automatic, expert }} {...(topTokens !== undefined && { topTokens })} />
      </Link>
      {withPlus && <PlusButton expert={expert} />}
    </span>
  );
}
