/** The tray on the Steering page: one card per edit, and ways to add experts. */

import { useQuery } from "@tanstack/react-query";
import { Fragment, useState } from "react";

import { routingOptionsQuery } from "@/api/queries";
import type { EditPrice, RoutingResponse, RunSummary } from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { methodName } from "@/components/runs/run-labels";
import { useTray } from "@/components/tray/tray-context";
import { Button, GhostButton, LinkButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { PaneHead } from "@/components/ui/pane-head";
import { useBestExperts } from "@/hooks/use-experts";
import { type Edit, editKey, hasStrength, NEUTRAL_STRENGTH } from "@/lib/edits/edits";
import { formatFixed, formatPlural, formatSigned } from "@/lib/text/format";

import { EditCard } from "./edit-card";
import type { ExpertField } from "./expert-field";
import { measureActivity } from "./edit-notes";
import type { StateProps } from "./index";
import { MeasurePrices } from "./prices";
import { MAX_EDITS } from "./steering-params";

interface AddExpertProps {
  readonly run: RunSummary;
  readonly focusOnOpen: boolean;
  readonly onAdded: () => void;
}

/** Adds an expert of any layer to the tray. The field that finds it is loaded once it has the focus. */
function AddExpert({ run, focusOnOpen, onAdded }: AddExpertProps) {
  const { data } = useQuery(routingOptionsQuery(run.name));
  const [chosen, setChosen] = useState(run.name);
  const [text, setText] = useState("");
  const [Field, setField] = useState<typeof ExpertField | null>(null);
  const { runs } = useCurrentRun();
  const other = runs.find(({ name }) => name === chosen) ?? run;
  const layers = [run, ...(data?.layers ?? [])].toSorted((a, b) => a.layer - b.layer);
  return (
    <>
      <label className="row layer-choice dim">
        Experts of
        <select className="grow" value={chosen} onChange={(event) => setChosen(event.target.value)}>
          {layers.map((one) => (
            <option key={one.name} value={one.name}>
              Layer {one.layer}, {methodName(one.method)}, {one.name}
            </option>
          ))}
        </select>
      </label>
      {Field === null ? (
        <div className="row search add-expert">
          <Icon name="search" />
          <input
            aria-label="Add an expert"
            placeholder="Label, token, words or id"
            // eslint-disable-next-line jsx-a11y/no-autofocus -- only if it was opened in order to type
            autoFocus={focusOnOpen}
            value={text}
            onChange={(event) => setText(event.target.value)}
            onFocus={() => void import("./expert-field").then((module) => setField(() => module.ExpertField))}
          />
        </div>
      ) : (
        <Field key={other.name} run={other} isOther={other.name !== run.name} typed={text} onAdded={onAdded} />
      )}
    </>
  );
}

function Price({ price }: { readonly price: EditPrice }) {
  const { edits, random, original_ability: original, ability, random_ability: randomAbility } = price;
  const points = (solved: typeof ability) => formatSigned(100 * (solved.all - original.all), 1);
  const loss = ({ loss_increase: nats }: typeof edits) => formatSigned(nats);
  const rows = [
    ["KL, nats", formatFixed(edits.kl), formatFixed(2 * edits.kl_error), formatFixed(random.kl)],
    ["Loss, nats", loss(edits), formatFixed(2 * edits.loss_error), loss(random)],
    ["Ability, points", points(ability), formatFixed(200 * price.ability_error, 1), points(randomAbility)],
  ] as const;
  return (
    <div role="status">
      <p className={price.is_costly ? "card-note warn" : "card-note"}>{price.verdict}</p>
      <dl>
        {rows.map(([name, own, interval, ofRandom]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>
              {own} ± {interval} <small>random {ofRandom}</small>
            </dd>
          </Fragment>
        ))}
      </dl>
      <details>
        <summary>Against random experts and by kind of item</summary>
        <p>{price.figures}.</p>
        <p>{price.ability_parts}</p>
      </details>
    </div>
  );
}

interface MeasuresProps extends StateProps {
  /** Address of the sweep that suggests a strength; null on its own page. */
  readonly sweepUrl: string | null;
}

/**
 * What can be measured of the tray: the best strength, and what the edits cost where nothing should change: on unrelated
 * text and in an ability test, beside random experts.
 */
function Measures({ state: { edits, costs }, sweepUrl }: MeasuresProps) {
  const [price = null] = costs.prices;
  return (
    <section className="measures" aria-label="Measures of the tray">
      <div className="row wrap">
        {edits.some(hasStrength) && sweepUrl !== null && (
          <LinkButton size="small" icon="chart" to={sweepUrl}>
            Suggest a strength
          </LinkButton>
        )}
        {costs.missing > 0 && (
          <MeasurePrices costs={costs} name={price === null ? "Measure side effects" : "Measure side effects again"} />
        )}
      </div>
      {price !== null ? (
        <Price price={price} />
      ) : (
        <p className="card-note">
          {costs.canMeasure
            ? costs.hint
            : "Edits with conditions have no side effects to measure, because they may not apply to other text."}
        </p>
      )}
    </section>
  );
}

const MAX_SUGGESTIONS = 8;

function EmptyTray({ run }: { readonly run: RunSummary }) {
  const { experts } = useBestExperts(run.name, run.indexed_tokens !== null);
  const suggested = run.indexed_tokens === null ? [] : experts.slice(0, MAX_SUGGESTIONS);
  return (
    <div className="ink2 stack empty-tray">
      <p>
        The tray is empty. Search for an expert above, or press <Icon name="plus" /> next to an expert on any page.
      </p>
      {suggested.length > 0 && (
        <>
          <p>Or start with one of these experts, the labelled ones first:</p>
          <ul className="expert-list suggestions">
            {suggested.map((row) => (
              <li key={row.expert} className="row">
                <ExpertLink {...row} topTokens={row.top_tokens} />
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

/** All edits with a strength at which they have no effect. */
function neutralise(edits: readonly Edit[]): readonly Edit[] {
  return edits.map((edit) => {
    const mode = edit.mode === "add" ? "add" : "scale";
    return { ...edit, mode, strength: NEUTRAL_STRENGTH[mode] };
  });
}

interface EditListProps extends MeasuresProps {
  readonly routing: RoutingResponse | undefined;
}

export function EditList({ state, sweepUrl, routing }: EditListProps) {
  const { run, edits, generator, draft, replaceAll } = state;
  const { steered } = generator.generation;
  const tray = useTray();
  const [adding, setAdding] = useState(false);
  const isEmpty = edits.length === 0;
  const { runs } = useCurrentRun();
  const isIndexed = (name = run.name) => runs.some((one) => one.name === name && one.indexed_tokens !== null);
  return (
    <section className="edits" aria-label="Edits">
      <PaneHead title="Tray" note={isEmpty ? "empty" : formatPlural(edits.length, "edit")} wrap>
        {!isEmpty && (
          <>
            <GhostButton onClick={() => replaceAll(neutralise(edits))}>Reset</GhostButton>
            <GhostButton onClick={() => replaceAll([])}>Clear</GhostButton>
            <Button
              size="small"
              icon="plus"
              aria-label="Add expert"
              aria-expanded={adding}
              disabled={edits.length >= MAX_EDITS}
              onClick={() => setAdding(!adding)}
            >
              Add
            </Button>
          </>
        )}
      </PaneHead>
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
                draft.commit(); // the prompt being typed
                tray.put(next);
              }}
              onRemove={() => tray.remove(edit.expert, edit.run)}
            />
          ))}
        </ol>
      )}
      {!isEmpty && <Measures {...{ state, sweepUrl }} />}
    </section>
  );
}
