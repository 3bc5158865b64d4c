/** The left side: one card an edit, and the ways to fill the tray. */

import { useState } from "react";

import type { RoutingResponse, RunSummary } from "@/api/types";
import { useBestExperts } from "@/components/best-experts";
import { Button } from "@/components/button";
import { useCurrentRun } from "@/components/current-run";
import { ExpertRef } from "@/components/expert-ref";
import { Icon } from "@/components/icon";
import { useTray } from "@/components/tray/tray-context";
import { type Edit, editKey, NEUTRAL_STRENGTH } from "@/lib/edits";

import { activityOf } from "./activity";
import { AddExpert } from "./add-expert";
import { EditCard } from "./edit-card";
import type { ArmText } from "./generation";
import { MOST_EDITS } from "./steering-params";

const SUGGESTED = 8;

function Suggestions({ run }: { readonly run: string }) {
  const { experts } = useBestExperts(run);
  if (experts.length === 0) return null;
  return (
    <>
      <p>Or begin with one of these, each strong on few kinds of token:</p>
      <ul className="suggestions">
        {experts.slice(0, SUGGESTED).map((row) => (
          <li key={row.expert}>
            <ExpertRef
              expert={row.expert}
              label={row.label}
              automatic={row.automatic}
              topTokens={row.top_tokens.map((token) => token.text).slice(0, 3)}
            />
          </li>
        ))}
      </ul>
    </>
  );
}

function EmptyTray({ run }: { readonly run: RunSummary }) {
  return (
    <div className="empty-tray">
      <p>
        The tray is empty. Search for an expert above, or press <Icon name="plus" /> beside one on any page: in a table,
        under a token, on its own page.
      </p>
      {run.indexed_tokens !== null && <Suggestions run={run.name} />}
    </div>
  );
}

/** Every edit where it changes nothing: scaling by 1, adding 0. */
function neutral(edits: readonly Edit[]): readonly Edit[] {
  return edits.map((edit) =>
    edit.mode === "off" || edit.mode === "set"
      ? { ...edit, mode: "scale", strength: NEUTRAL_STRENGTH.scale }
      : { ...edit, strength: NEUTRAL_STRENGTH[edit.mode] },
  );
}

interface EditListProps {
  readonly run: RunSummary;
  readonly edits: readonly Edit[];
  readonly routing: RoutingResponse | undefined;
  readonly steered: ArmText;
  /** Before any edit changes, so that what is typed in the prompt counts too. */
  readonly onBeforeChange: () => void;
  readonly onReset: (edits: readonly Edit[]) => void;
}

export function EditList({ run, edits, routing, steered, onBeforeChange, onReset }: EditListProps) {
  const tray = useTray();
  const [adding, setAdding] = useState(false);
  const isEmpty = edits.length === 0;
  const { runs } = useCurrentRun();
  const isIndexed = (name = run.name) => runs.some((one) => one.name === name && one.indexed_tokens !== null);
  return (
    <section className="edits" aria-label="Edits">
      <div className="pane-h">
        <h2>Tray</h2>
        <span className="note">{isEmpty ? "empty" : `${edits.length} ${edits.length === 1 ? "edit" : "edits"}`}</span>
        <span className="grow" />
        {!isEmpty && (
          <Button size="small" variant="ghost" icon="reset" onClick={() => onReset(neutral(edits))}>
            Reset
          </Button>
        )}
        {!isEmpty && (
          <Button
            size="small"
            icon="plus"
            aria-expanded={adding}
            disabled={edits.length >= MOST_EDITS}
            onClick={() => setAdding(!adding)}
          >
            Expert
          </Button>
        )}
      </div>
      {(adding || isEmpty) && <AddExpert run={run} takesFocus={adding} onAdded={() => setAdding(false)} />}
      {isEmpty ? (
        <EmptyTray run={run} />
      ) : (
        <ol>
          {edits.map((edit) => (
            <EditCard
              key={editKey(edit)}
              run={edit.run ?? run.name}
              edit={edit}
              isIndexed={isIndexed(edit.run)}
              activity={edit.run === undefined ? activityOf(edit.expert, routing, steered) : null}
              onChange={(next) => {
                onBeforeChange();
                tray.put(next);
              }}
              onRemove={() => tray.remove(edit.expert, edit.run)}
            />
          ))}
        </ol>
      )}
      {!isEmpty && (
        <p className="hint">
          Add and set count in 99th percentiles of each expert’s own coefficient, so that a strength means the same on
          every card.
        </p>
      )}
    </section>
  );
}
