/** How well the automatic label predicts where the expert fires, on held-out text. */

import type { ReactNode } from "react";

import type { AutomaticLabel, ExpertDetail } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatFixed, formatPercent } from "@/lib/text/format";

interface MeasureProps {
  readonly name: ReactNode;
  readonly children: ReactNode;
}

function Measure({ name, children }: MeasureProps) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** A share, or why there is none. */
const share = (value: number | null, reason: string) =>
  value === null ? <span>{reason}</span> : `${formatPercent(value, 0)} %`;

/** The interval is over the examples that the label matches. It ends at the accuracy if those are all or none. */
function intervalText(examples: number, accuracy: number, [low, high]: readonly [number, number]): string {
  const isAt = (end: number) => Math.abs(end - accuracy) < 1e-6;
  const method = "Its interval (95 %, Wilson) is over the examples";
  if (isAt(high)) return `${method}. All ${examples} match the label, so it ends at the value.`;
  if (isAt(low)) return `${method}. None of them match the label, so it starts at the value.`;
  return `${method}.`;
}

interface ScoresProps {
  readonly automatic: AutomaticLabel;
  readonly interval: ExpertDetail["accuracy_interval"];
}

function Scores({ automatic, interval }: ScoresProps) {
  const { balanced_accuracy: accuracy, precision, recall, test_examples: examples } = automatic;
  if (accuracy === null) return <p className="ablation-note">Not tested.</p>;
  // Only rule-based labels have an interval, and are tested on a sample of tokens.
  const isRule = interval !== null;
  return (
    <>
      <dl className="kv">
        <Measure name="Balanced accuracy">
          {formatFixed(accuracy)}{" "}
          {isRule && (
            <span>
              ({formatFixed(interval[0])} to {formatFixed(interval[1])})
            </span>
          )}
        </Measure>
        {isRule && (
          <>
            <Measure name={<Term id="precision">Precision</Term>}>{share(precision, "no match in the sample")}</Measure>
            <Measure name={<Term id="recall">Recall</Term>}>{share(recall, "inactive in the sample")}</Measure>
          </>
        )}
      </dl>
      <p className="ablation-note">
        Balanced accuracy (0.5 is chance): on {examples} held-out examples
        {isRule ? ` and on inactive tokens. ${intervalText(examples, accuracy, interval)}` : "."}
      </p>
      {isRule && (
        <p className="ablation-note">
          Precision and recall: on held-out tokens, weak activations included. Their number is not stored, so there is
          no interval.
        </p>
      )}
    </>
  );
}

export function LabelQuality({ detail }: { readonly detail: ExpertDetail }) {
  const { automatic, label } = detail.row;
  return (
    <>
      {label !== null && (
        <section>
          <p className="ablation-note">The label was written by a user. It is not tested.</p>
        </section>
      )}
      {automatic !== null && (
        <section>
          <div className="pane-h">
            <h2>
              <Term id="automatic_label">Automatic label</Term>
            </h2>
            <span className="note">{automatic.label}</span>
          </div>
          <Scores automatic={automatic} interval={detail.accuracy_interval} />
          {!automatic.is_clear && (
            <p className="ablation-note">Too weak for a name: {automatic.weaknesses.join(", ")}.</p>
          )}
        </section>
      )}
    </>
  );
}
