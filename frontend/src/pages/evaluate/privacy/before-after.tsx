/** A passage before and after privacy fine-tuning, its tokens shaded by confidence. */

import { useQuery } from "@tanstack/react-query";

import { tokenConfidenceQuery } from "@/api/privacy";
import type { PrivacyFineTune, TokenConfidence } from "@/api/types";
import { TokenChip } from "@/components/tokens/token-chip";
import { TokenStrip } from "@/components/tokens/token-strip";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { formatPercent, formatPlural, formatProbability } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";

import { passageSummary, type ShadeBy, shadeValue } from "./passage-summary";

type Stage = "before" | "after";

const STAGES: readonly (readonly [Stage, string])[] = [
  ["before", "Before"],
  ["after", "After"],
];

function Tip({ token, stage }: { readonly token: TokenConfidence; readonly stage: Stage }) {
  const { probability, entropy, likely, likely_probability } = token[stage];
  return (
    <>
      <div className="hd">
        <TokenChip text={token.text} />
      </div>
      <dl>
        <dt>Probability</dt>
        <dd>
          <b>{formatProbability(probability)} %</b>
        </dd>
        <dt>Entropy (% of uniform)</dt>
        <dd>{formatPercent(entropy, 1)} %</dd>
        <dt>Most likely token</dt>
        <dd>
          <TokenChip text={likely} /> {formatProbability(likely_probability)} %
        </dd>
      </dl>
    </>
  );
}

interface RowProps {
  readonly tokens: readonly TokenConfidence[];
  readonly stage: Stage;
  readonly name: string;
  readonly by: ShadeBy;
}

function Row({ tokens, stage, name, by }: RowProps) {
  const pieces: readonly Piece[] = tokens.map((token, index) => ({
    index,
    id: index,
    text: token.text,
    value: shadeValue(token[stage], by),
  }));
  const tip = (piece: Piece) => {
    const token = tokens[piece.index];
    return token === undefined ? null : <Tip token={token} stage={stage} />;
  };
  return (
    <div className="confidence-row">
      <h3>{name}</h3>
      <TokenStrip
        label={`Passage ${name.toLowerCase()}`}
        pieces={pieces}
        shade={(piece) => sequentialClass(piece.value ?? 0, 1)}
        tip={tip}
      />
    </div>
  );
}

interface BeforeAfterProps {
  readonly shown: PrivacyFineTune;
  readonly tokens: readonly TokenConfidence[];
  readonly by: ShadeBy;
}

function Means({ shown, tokens, by }: BeforeAfterProps) {
  const means = passageSummary(tokens, shown.skip_tokens, by);
  if (means === null) return null;
  return (
    <p className="confidence-means">
      {by === "entropy" ? "Mean entropy" : "Mean probability of the true token"}:{" "}
      <b>
        {formatPercent(means.before, 1)} % → {formatPercent(means.after, 1)} %
      </b>{" "}
      {by === "entropy" && "of uniform "}
      <span className="dim">({formatPlural(means.predictions, "prediction")})</span>
    </p>
  );
}

export function BeforeAfter({ shown, tokens, by }: BeforeAfterProps) {
  return (
    <div className="confidence-passage">
      <Means shown={shown} tokens={tokens} by={by} />
      {STAGES.map(([stage, name]) => (
        <Row key={stage} tokens={tokens} stage={stage} name={name} by={by} />
      ))}
    </div>
  );
}

interface MeasuredPassageProps {
  readonly shown: PrivacyFineTune;
  readonly text: string;
  readonly by: ShadeBy;
}

/** A typed passage, evaluated now with both sets of runs. */
export function MeasuredPassage({ shown, text, by }: MeasuredPassageProps) {
  const { parents, runs } = shown.result;
  const { data, error, refetch } = useQuery(tokenConfidenceQuery(parents, runs, text));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Evaluating the passage before and after" rows={3} />;
  return <BeforeAfter shown={shown} tokens={data.tokens} by={by} />;
}
