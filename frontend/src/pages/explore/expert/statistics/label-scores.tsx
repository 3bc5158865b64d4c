/** Scores of the displayed label by language models, each beside that of another expert's label. */

import type { ExpertDetail, LabelScore } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { Term } from "@/components/terms/term";
import { formatFixed } from "@/lib/text/format";

const formatScore = (score: number | null) => (score === null ? "not measured" : formatFixed(score));

function ScoreRow({ method, score, control, texts, reason }: LabelScore) {
  return (
    <tr title={reason ?? undefined}>
      <th scope="row">{method}</th>
      <td className="num own">{formatScore(score)}</td>
      <td className="num">{formatScore(control)}</td>
      <td className="num">{texts}</td>
    </tr>
  );
}

export function LabelScores({ detail }: { readonly detail: ExpertDetail }) {
  const { row, label_scores: scores } = detail;
  const isLabelShown = row.label !== null || shownAutomatic(row.automatic) !== null;
  if (scores.length === 0 || !isLabelShown) return null;
  return (
    <section>
      <div className="pane-h">
        <h2>
          <Term id="label_scores">Label scores</Term>
        </h2>
      </div>
      <table className="ablation-effects">
        <thead>
          <tr>
            <th>Judge</th>
            <th className="num">AUROC</th>
            <th className="num">Control</th>
            <th className="num">Texts</th>
          </tr>
        </thead>
        {[...new Set(scores.map(({ judge }) => judge))].map((judge) => (
          <tbody key={judge}>
            <tr>
              <th scope="rowgroup" colSpan={4}>
                {judge}
              </th>
            </tr>
            {scores
              .filter((score) => score.judge === judge)
              .map((score) => (
                <ScoreRow key={score.method} {...score} />
              ))}
          </tbody>
        ))}
      </table>
      <p className="ablation-note">
        The control is another expert’s label. A score is worth only what it exceeds its control by.
      </p>
    </section>
  );
}
