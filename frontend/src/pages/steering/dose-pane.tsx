/** How much is enough: one edit over a range of strengths, with what it does and what it costs. */

import { useState } from "react";
import { ListBox, ListBoxItem, Popover, Select } from "react-aria-components";

import type { SteeringRequest } from "@/api/types";
import { Button } from "@/components/button";
import { Icon } from "@/components/icon";
import { TriggerButton } from "@/components/trigger-button";
import { describeEdit, type Edit, NEUTRAL_STRENGTH } from "@/lib/edits";
import { formatFixed } from "@/lib/format";

import { doseKey, type DosedMode, type DosePoint, nearestDose, suggestedDose } from "./dose";
import { DoseChart } from "./dose-chart";
import { useDose } from "./use-dose";

type DosedEdit = Edit & { readonly mode: DosedMode };

interface DosePaneProps {
  readonly run: string;
  readonly request: SteeringRequest;
  readonly edits: readonly Edit[];
  readonly onChange: (edit: Edit) => void;
}

function Which({
  edits,
  edit,
  onEdit,
}: {
  edits: readonly DosedEdit[];
  edit: DosedEdit;
  onEdit: (id: number) => void;
}) {
  if (edits.length === 1) return <span className="chip mono">{edit.expert}</span>;
  return (
    <Select
      aria-label="Edit to measure"
      value={String(edit.expert)}
      onChange={(key) => key !== null && onEdit(Number(key))}
    >
      <TriggerButton className="chip mono">
        {edit.expert}
        <Icon name="chevronDown" />
      </TriggerButton>
      <Popover className="popover" placement="top start">
        <ListBox items={edits.map((one) => ({ id: String(one.expert), one }))}>
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
              KL <span className="unit">nats</span>
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
              <td className="num">× {formatFixed(point.cost, 1)}</td>
              <td>…{point.text}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Summary({ points, edit, describe, onChoose }: TableProps & { readonly edit: DosedEdit }) {
  const here = nearestDose(points, edit.strength);
  const suggested = suggestedDose(points, NEUTRAL_STRENGTH[edit.mode]);
  return (
    <p className="dose-summary">
      <span>
        <i className="effect" />
        KL, nats a token: <b>{here === null ? "" : formatFixed(here.effect)}</b>
      </span>
      <span>
        <i className="cost" />
        perplexity: <b>× {here === null ? "" : formatFixed(here.cost, 1)}</b>
      </span>
      <span className="grow" />
      {suggested === null ? (
        <span className="dim">none shows and reads well</span>
      ) : (
        <button type="button" className="link" onClick={() => onChoose(suggested)}>
          Take {describe(suggested)}
        </button>
      )}
    </p>
  );
}

function Idle({
  failure,
  isMeasuring,
  onMeasure,
}: {
  failure: string | null;
  isMeasuring: boolean;
  onMeasure: () => void;
}) {
  return (
    <div className="dose-idle">
      <p className="dim">
        {isMeasuring
          ? "Writing short texts at every strength …"
          : "Short texts at several strengths tell how much is enough: what they change, and when they fall apart."}
      </p>
      {failure !== null && <p className="bad">{failure}</p>}
      <Button size="small" icon="chart" disabled={isMeasuring} onClick={onMeasure}>
        Measure
      </Button>
    </div>
  );
}

function Measured({
  run,
  request,
  edits,
  edit,
  onEdit,
  onChange,
}: DosePaneProps & { edits: readonly DosedEdit[]; edit: DosedEdit; onEdit: (id: number) => void }) {
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
        <Which edits={edits} edit={edit} onEdit={onEdit} />
        <span className="grow" />
        {isCurrent && doses.status === "done" && (
          <Button
            size="small"
            icon={asTable ? "chart" : "table"}
            aria-label={asTable ? "As a drawing" : "As a table"}
            onClick={() => setAsTable(!asTable)}
          />
        )}
      </div>
      {isCurrent && doses.status === "done" ? (
        <>
          {asTable ? <DoseTable {...views} /> : <DoseChart current={edit.strength} {...views} />}
          <Summary edit={edit} {...views} />
        </>
      ) : (
        <Idle
          failure={isCurrent ? doses.failure : null}
          isMeasuring={isCurrent && doses.status === "measuring"}
          onMeasure={start}
        />
      )}
    </section>
  );
}

export function DosePane(props: DosePaneProps) {
  const [chosen, setChosen] = useState<number | null>(null);
  const dosed = props.edits.filter((edit): edit is DosedEdit => edit.mode !== "off");
  const edit = dosed.find(({ expert }) => expert === chosen) ?? dosed[0];
  if (edit === undefined) return null;
  return <Measured {...props} edits={dosed} edit={edit} onEdit={setChosen} />;
}
