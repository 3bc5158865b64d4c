/** Scores of the displayed label by language models, each beside that of another expert's label. */

import type { LabelScore } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatFixed } from "@/lib/text/format";

const value = (score: number | null) => (score === null ? "not measured" : formatFixed(score));

function Score({ method, score, control, texts, reason }: LabelScore) {
  return (
    <span className="label-score" title={reason ?? undefined}>
      {method} {value(score)} <span className="dim">{`(control ${value(control)}), ${texts} texts`}</span>
    </span>
  );
}

export function LabelScores({ scores }: { readonly scores: readonly LabelScore[] }) {
  if (scores.length === 0) return null;
  const judges = [...new Set(scores.map(({ judge }) => judge))];
  return (
    <div className="label-scores">
      {judges.map((judge) => (
        <p key={judge}>
          <Term id="label_scores">Label scores</Term> <span className="dim">by {judge}</span>
          {scores
            .filter((score) => score.judge === judge)
            .map((score) => (
              <Score key={score.method} {...score} />
            ))}
        </p>
      ))}
      <p className="dim">A score is worth only what it exceeds its control by.</p>
    </div>
  );
}
