/** A passage before and after privacy fine-tuning, its tokens shaded by confidence. */

import { useQuery } from "@tanstack/react-query";

import { tokenConfidenceQuery } from "@/api/privacy";
import type { PrivacyFineTune, TokenConfidence } from "@/api/types";
import { TokenChip } from "@/components/tokens/token-chip";
import { TokenStrip } from "@/components/tokens/token-strip";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { formatFixed, formatPercent, formatProbability } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";

import { passageSummary } from "./passage-summary";

export type ShadeBy = "true-token" | "entropy";
type Stage = "before" | "after";

const STAGES: readonly (readonly [Stage, string])[] = [
  ["before", "Before"],
  ["after", "After"],
];

const shadeValue = ({ probability, entropy }: TokenConfidence[Stage], by: ShadeBy) =>
  by === "entropy" ? entropy : probability;

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

function Means({ shown, tokens }: Omit<BeforeAfterProps, "by">) {
  const means = passageSummary(tokens, shown.skip_tokens, shown.result.vocabulary);
  if (means === null) return null;
  const [trueBefore, trueAfter] = means.trueToken;
  const [before, after] = means.distance;
  return (
    <p className="confidence-means">
      True token{" "}
      <b>
        {formatPercent(trueBefore, 1)} → {formatPercent(trueAfter, 1)} %
      </b>
      , confidence distance{" "}
      <b>
        {formatFixed(before)} → {formatFixed(after)}
      </b>{" "}
      <span className="dim">(means over {means.predictions} predictions)</span>
    </p>
  );
}

export function BeforeAfter({ shown, tokens, by }: BeforeAfterProps) {
  return (
    <div className="confidence-passage">
      <Means shown={shown} tokens={tokens} />
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
