/** The tray on the Steering page: one card per edit, and ways to add experts. */

import { useState } from "react";

import type { RoutingResponse, RunSummary } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { useTray } from "@/components/tray/tray-context";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { useBestExperts } from "@/hooks/use-best-experts";
import { type Edit, editKey, NEUTRAL_STRENGTH } from "@/lib/edits/edits";
import { MAX_EDITS } from "@/pages/steer/steering/steering-params";
import type { VariantText } from "@/pages/steer/steering/texts/generation";

import { measureActivity } from "./activity";
import { AddExpert } from "./add-expert";
import { EditCard } from "./edit-card";
import { EditPriceLine } from "./edit-price";

const MAX_SUGGESTIONS = 8;

function Suggestions({ run }: { readonly run: string }) {
  const { experts } = useBestExperts(run);
  if (experts.length === 0) return null;
  return (
    <>
      <p>Or start with one of these experts, the labelled ones first:</p>
      <ul className="suggestions">
        {experts.slice(0, MAX_SUGGESTIONS).map((row) => (
          <li key={row.expert}>
            <ExpertLink
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
        The tray is empty. Search for an expert above, or press <Icon name="plus" /> next to an expert on any page.
      </p>
      {run.indexed_tokens !== null && <Suggestions run={run.name} />}
    </div>
  );
}

/** All edits with a strength at which they have no effect. */
function neutralise(edits: readonly Edit[]): readonly Edit[] {
  return edits.map((edit) =>
    edit.mode === "ablate" || edit.mode === "set"
      ? { ...edit, mode: "scale", strength: NEUTRAL_STRENGTH.scale }
      : { ...edit, strength: NEUTRAL_STRENGTH[edit.mode] },
  );
}

interface EditListProps {
  readonly run: RunSummary;
  readonly edits: readonly Edit[];
  readonly routing: RoutingResponse | undefined;
  readonly steered: VariantText;
  /** Called before an edit changes, to commit the prompt being typed. */
  readonly onBeforeChange: () => void;
  readonly onReset: (edits: readonly Edit[]) => void;
}

function ResetButtons({ edits, onReset }: Pick<EditListProps, "edits" | "onReset">) {
  return (
    <>
      <Button size="small" variant="ghost" onClick={() => onReset(neutralise(edits))}>
        Reset
      </Button>
      <Button size="small" variant="ghost" onClick={() => onReset([])}>
        Clear
      </Button>
    </>
  );
}

export function EditList({ run, edits, routing, steered, onBeforeChange, onReset }: EditListProps) {
  const tray = useTray();
  const [adding, setAdding] = useState(false);
  const isEmpty = edits.length === 0;
  const { runs } = useCurrentRun();
  const isIndexed = (name = run.name) => runs.some((one) => one.name === name && one.indexed_tokens !== null);
  return (
    <section className="edits" aria-label="Edits">
      <div className="pane-h wrap">
        <h2>Tray</h2>
        <span className="note">{isEmpty ? "empty" : `${edits.length} ${edits.length === 1 ? "edit" : "edits"}`}</span>
        <span className="grow" />
        {!isEmpty && <ResetButtons edits={edits} onReset={onReset} />}
        {!isEmpty && (
          <Button
            size="small"
            icon="plus"
            aria-label="Add expert"
            aria-expanded={adding}
            disabled={edits.length >= MAX_EDITS}
            onClick={() => setAdding(!adding)}
          >
            <span>
              Add<span className="wide"> expert</span>
            </span>
          </Button>
        )}
      </div>
      {(adding || isEmpty) && <AddExpert run={run} focusOnOpen={adding} onAdded={() => setAdding(false)} />}
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
              activity={edit.run === undefined ? measureActivity(edit.expert, routing, steered) : null}
              onChange={(next) => {
                onBeforeChange();
                tray.put(next);
              }}
              onRemove={() => tray.remove(edit.expert, edit.run)}
            />
          ))}
        </ol>
      )}
      {!isEmpty && <EditPriceLine run={run.name} edits={edits} />}
      {!isEmpty && (
        <p className="hint">
          The unit of add and set is the 99th percentile of each expert’s own activation, so that strengths are
          comparable.
        </p>
      )}
    </section>
  );
}
