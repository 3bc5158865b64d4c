/** How much is enough: one edit over a range of strengths, with what it does and what it costs. */

import { useState } from "react";
import { ListBox, ListBoxItem, Popover, Select } from "react-aria-components";

import type { SteeringRequest } from "@/api/types";
import { Button } from "@/components/button";
import { Icon } from "@/components/icon";
import { TriggerButton } from "@/components/trigger-button";
import { TokenChip } from "@/components/tokens/token-chip";
import { describeEdit, type Edit, editKey } from "@/lib/edits";
import { formatFixed, formatSigned } from "@/lib/format";

import { doseKey, type DosedMode, type DosePoint, nearestDose } from "./dose";
import { DoseChart } from "./dose-chart";
import { type Doses, useDose } from "./use-dose";

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
  onEdit: (key: string) => void;
}) {
  if (edits.length === 1) return <span className="chip mono">{editKey(edit)}</span>;
  return (
    <Select
      // What stands on it is part of its name: it can be said aloud.
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
              KL <span className="unit">nats</span>
            </th>
            <th className="num">
              Own tokens <span className="unit">%</span>
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

/** How the server suggests a strength. */
const RULE =
  "The largest that shows (0.05 nats of KL a token) before a text costs half a nat a token more than without the edit.";

interface SummaryProps extends TableProps {
  readonly edit: DosedEdit;
  readonly suggested: number | null;
}

function Summary({ points, edit, suggested, describe, onChoose }: SummaryProps) {
  const here = nearestDose(points, edit.strength);
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
        <span className="dim" title={RULE}>
          none shows and reads well
        </span>
      ) : (
        <button type="button" className="link" title={RULE} onClick={() => onChoose(suggested)}>
          Take {describe(suggested)}
        </button>
      )}
    </p>
  );
}

const PROMOTED = 6;

function Promoted({ tokens }: { readonly tokens: readonly string[] }) {
  return (
    <p className="dose-promoted dim">
      Own tokens here:{" "}
      {tokens.slice(0, PROMOTED).map((text, i) => (
        <TokenChip key={i} text={text} />
      ))}
    </p>
  );
}

function Waiting({ doses }: { readonly doses: Doses }) {
  if (doses.before > 0) {
    return (
      <p className="dim">
        {doses.before} {doses.before === 1 ? "request comes" : "requests come"} first
      </p>
    );
  }
  return (
    <label className="dim">
      Writing short texts at every strength <progress value={doses.share} />
    </label>
  );
}

function Idle({ doses, isCurrent, onMeasure }: { doses: Doses; isCurrent: boolean; onMeasure: () => void }) {
  const isMeasuring = isCurrent && doses.status === "measuring";
  const failure = isCurrent ? doses.failure : null;
  return (
    <div className="dose-idle">
      {isMeasuring ? (
        <Waiting doses={doses} />
      ) : (
        <p className="dim">
          Short texts at several strengths tell how much is enough: what they change, and when they fall apart.
        </p>
      )}
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
}: DosePaneProps & { edits: readonly DosedEdit[]; edit: DosedEdit; onEdit: (key: string) => void }) {
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
          <Summary edit={edit} suggested={doses.suggested} {...views} />
          <Promoted tokens={doses.promoted} />
        </>
      ) : (
        <Idle doses={doses} isCurrent={isCurrent} onMeasure={start} />
      )}
    </section>
  );
}

export function DosePane(props: DosePaneProps) {
  const [chosen, setChosen] = useState<string | null>(null);
  const dosed = props.edits.filter((edit): edit is DosedEdit => edit.mode !== "off");
  const edit = dosed.find((one) => editKey(one) === chosen) ?? dosed[0];
  if (edit === undefined) return null;
  return <Measured {...props} edits={dosed} edit={edit} onEdit={setChosen} />;
}
