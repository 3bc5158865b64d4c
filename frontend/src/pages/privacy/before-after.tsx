/** A passage with the runs as they were and as they are now, its tokens shaded by how sure they are. */

import { useQuery } from "@tanstack/react-query";

import { sureTokensQuery } from "@/api/privacy";
import type { PrivacyResult, SureToken } from "@/api/types";
import { ErrorState, LoadingState } from "@/components/states";
import { TokenChip } from "@/components/tokens/token-chip";
import { TokenStrip } from "@/components/tokens/token-strip";
import { sequentialClass } from "@/lib/colour-scale";
import { formatPercent, formatProbability } from "@/lib/format";
import type { Piece } from "@/lib/kwic";

export type By = "true-token" | "entropy";
type Arm = "before" | "after";

const ARMS: readonly (readonly [Arm, string])[] = [
  ["before", "Before"],
  ["after", "After"],
];

const valueOf = ({ probability, entropy }: SureToken[Arm], by: By) => (by === "entropy" ? entropy : probability);

function Tip({ token, arm }: { readonly token: SureToken; readonly arm: Arm }) {
  const { probability, entropy, likely, likely_probability } = token[arm];
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
        <dt>Entropy, of uniform</dt>
        <dd>{formatPercent(entropy, 1)} %</dd>
        <dt>Most probable</dt>
        <dd>
          <TokenChip text={likely} /> {formatProbability(likely_probability)} %
        </dd>
      </dl>
    </>
  );
}

interface RowProps {
  readonly tokens: readonly SureToken[];
  readonly arm: Arm;
  readonly name: string;
  readonly by: By;
}

function Row({ tokens, arm, name, by }: RowProps) {
  const pieces: readonly Piece[] = tokens.map((token, index) => ({
    index,
    id: index,
    text: token.text,
    value: valueOf(token[arm], by),
  }));
  const tip = (piece: Piece) => {
    const token = tokens[piece.index];
    return token === undefined ? null : <Tip token={token} arm={arm} />;
  };
  return (
    <div className="sure-row">
      <h3>{name}</h3>
      <TokenStrip
        label={`The passage ${name.toLowerCase()}`}
        pieces={pieces}
        shade={(piece) => sequentialClass(piece.value ?? 0, 1)}
        tip={tip}
      />
    </div>
  );
}

interface BeforeAfterProps {
  readonly result: PrivacyResult;
  readonly text: string;
  readonly by: By;
}

export function BeforeAfter({ result, text, by }: BeforeAfterProps) {
  const { data, error, refetch } = useQuery(sureTokensQuery(result.began_as, result.runs, text));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Reading the passage with both" rows={3} />;
  return (
    <div className="sure-passage">
      {ARMS.map(([arm, name]) => (
        <Row key={arm} tokens={data.tokens} arm={arm} name={name} by={by} />
      ))}
    </div>
  );
}
