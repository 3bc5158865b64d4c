/** Dose pane: one edit at several strengths (strength sweep), with effect and cost. */

import { useState } from "react";
import { ListBox, ListBoxItem, Popover, Select } from "react-aria-components";

import type { SteeringRequest } from "@/api/types";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { describeEdit, type Edit, editKey } from "@/lib/edits/edits";
import { formatFixed, formatSigned } from "@/lib/text/format";

import { doseKey, type SweepMode, type DosePoint, nearestDose } from "./dose";
import { DoseChart } from "./dose-chart";
import { type Doses, useDose } from "./use-dose";

type SweepEdit = Edit & { readonly mode: SweepMode };

interface DosePaneProps {
  readonly run: string;
  readonly request: SteeringRequest;
  readonly edits: readonly Edit[];
  readonly onChange: (edit: Edit) => void;
}

function EditChoice({
  edits,
  edit,
  onEdit,
}: {
  edits: readonly SweepEdit[];
  edit: SweepEdit;
  onEdit: (key: string) => void;
}) {
  if (edits.length === 1) return <span className="chip mono">{editKey(edit)}</span>;
  return (
    <Select
      // The accessible name must contain the visible text.
      aria-label={`Edit to measure: ${editKey(edit)}`}
      value={editKey(edit)}
      onChange={(key) => key !== null && onEdit(String(key))}
    >
      <TriggerButton className="chip mono">
        {editKey(edit)}
        <Icon name="chevronDown" />
      </TriggerButton>
      <Popover className="popover" placement="top start">
        <ListBox items={edits.map((one) => ({ id: editKey(one), one }))}>
          {({ id, one }) => (
            <ListBoxItem id={id} textValue={id}>
              <span className="mono">{id}</span> <span className="dim">{describeEdit(one)}</span>
            </ListBoxItem>
          )}
        </ListBox>
      </Popover>
    </Select>
  );
}

interface TableProps {
  readonly points: readonly DosePoint[];
  readonly describe: (strength: number) => string;
  readonly onChoose: (strength: number) => void;
}

function DoseTable({ points, describe, onChoose }: TableProps) {
  return (
    <div className="figure-table dose-table">
      <table className="grid plain">
        <thead>
          <tr>
            <th>Strength</th>
            <th className="num">
              KL <span className="unit">nats/token</span>
            </th>
            <th className="num">
              Promoted tokens <span className="unit">%</span>
            </th>
            <th className="num">Perplexity</th>
            <th>Text</th>
          </tr>
        </thead>
        <tbody>
          {points.map((point) => (
            <tr key={point.strength}>
              <td>
                <button type="button" className="link" onClick={() => onChoose(point.strength)}>
                  {describe(point.strength)}
                </button>
              </td>
              <td className="num">{formatFixed(point.effect)}</td>
              <td className="num">{formatSigned(100 * point.lift, 1)}</td>
              <td className="num">× {formatFixed(point.cost, 1)}</td>
              <td>…{point.text}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The server's rule for the suggested strength. */
const SUGGESTION_RULE =
  "The largest strength with a visible effect (KL of at least 0.05 nats per token) that costs less than 0.5 nats per token.";

interface SummaryProps extends TableProps {
  readonly edit: SweepEdit;
  readonly suggested: number | null;
}

function Summary({ points, edit, suggested, describe, onChoose }: SummaryProps) {
  const nearest = nearestDose(points, edit.strength);
  return (
    <p className="dose-summary">
      <span>
        <i className="effect" />
        KL, nats per token: <b>{nearest === null ? "" : formatFixed(nearest.effect)}</b>
      </span>
      <span>
        <i className="cost" />
        perplexity: <b>× {nearest === null ? "" : formatFixed(nearest.cost, 1)}</b>
      </span>
      <span className="grow" />
      {suggested === null ? (
        <span className="dim" title={SUGGESTION_RULE}>
          no suitable strength
        </span>
      ) : (
        <button type="button" className="link" title={SUGGESTION_RULE} onClick={() => onChoose(suggested)}>
          Use {describe(suggested)}
        </button>
      )}
    </p>
  );
}

const MAX_PROMOTED = 6;

function PromotedTokens({ tokens }: { readonly tokens: readonly string[] }) {
  return (
    <p className="dose-promoted dim">
      Tokens it promotes:{" "}
      {tokens.slice(0, MAX_PROMOTED).map((text, i) => (
        <TokenChip key={i} text={text} />
      ))}
    </p>
  );
}

function SweepProgress({ doses }: { readonly doses: Doses }) {
  if (doses.before > 0) {
    return (
      <p className="dim">
        {doses.before} {doses.before === 1 ? "request ahead" : "requests ahead"}
      </p>
    );
  }
  return (
    <label className="dim">
      Generating short texts at each strength <progress value={doses.share} />
    </label>
  );
}

function EmptyDose({ doses, isCurrent, onMeasure }: { doses: Doses; isCurrent: boolean; onMeasure: () => void }) {
  const isMeasuring = isCurrent && doses.status === "measuring";
  const failure = isCurrent ? doses.failure : null;
  return (
    <div className="dose-idle">
      {isMeasuring ? (
        <SweepProgress doses={doses} />
      ) : (
        <p className="dim">
          Strength sweep: short texts at several strengths show how large the effect is and when fluency is lost.
        </p>
      )}
      {failure !== null && <p className="bad">{failure}</p>}
      <Button size="small" icon="chart" disabled={isMeasuring} onClick={onMeasure}>
        Measure
      </Button>
    </div>
  );
}

function DoseForEdit({
  run,
  request,
  edits,
  edit,
  onEdit,
  onChange,
}: DosePaneProps & { edits: readonly SweepEdit[]; edit: SweepEdit; onEdit: (key: string) => void }) {
  const { doses, measure } = useDose(run);
  const [asTable, setAsTable] = useState(false);
  const describe = (strength: number) =>
    strength === 0 ? "0" : describeEdit({ mode: edit.mode, strength }).replace(/\.0$/, "");
  const choose = (strength: number) => onChange({ ...edit, strength });
  const isCurrent = doses.key === doseKey(request, edit);
  const start = () => void measure(request, edit);
  const views = { points: doses.points, describe, onChoose: choose };
  return (
    <section className="dose" aria-label="Dose">
      <div className="pane-h">
        <h2>Dose</h2>
        <span className="note">{edit.mode} of</span>
        <EditChoice edits={edits} edit={edit} onEdit={onEdit} />
        <span className="grow" />
        {isCurrent && doses.status === "done" && (
          <Button
            size="small"
            icon={asTable ? "chart" : "table"}
            aria-label={asTable ? "Show as figure" : "Show as table"}
            onClick={() => setAsTable(!asTable)}
          />
        )}
      </div>
      {isCurrent && doses.status === "done" ? (
        <>
          {asTable ? <DoseTable {...views} /> : <DoseChart current={edit.strength} {...views} />}
          <Summary edit={edit} suggested={doses.suggested} {...views} />
          <PromotedTokens tokens={doses.promoted} />
        </>
      ) : (
        <EmptyDose doses={doses} isCurrent={isCurrent} onMeasure={start} />
      )}
    </section>
  );
}

export function DosePane(props: DosePaneProps) {
  const [chosen, setChosen] = useState<string | null>(null);
  const sweepable = props.edits.filter((edit): edit is SweepEdit => edit.mode !== "ablate");
  const edit = sweepable.find((one) => editKey(one) === chosen) ?? sweepable[0];
  if (edit === undefined) return null;
  return <DoseForEdit {...props} edits={sweepable} edit={edit} onEdit={setChosen} />;
}
