/** The runs of other layers that a prompt goes through, and a chip for each. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { Link, useLocation } from "react-router";

import { routingOptionsQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pickLayerRuns, urlForRun } from "@/components/runs/page-links";
import { layerLabel, methodName } from "@/components/runs/run-labels";
import { useTray } from "@/components/tray/tray-context";
import { formatEdits } from "@/lib/edits/edits";

/** Names of the other runs; undefined while loading. */
export function useOtherRuns(run: RunSummary, layers: readonly string[] | null): readonly string[] | undefined {
  const { data, error } = useQuery(routingOptionsQuery(run.name));
  return useMemo(() => {
    if (data === undefined) return error === null ? undefined : [];
    const supported = data.layers.filter(({ method }) => method !== "autoencoder");
    if (layers === null) return pickLayerRuns(run, supported);
    return supported.filter(({ name }) => layers.includes(name)).map(({ name }) => name);
  }, [data, error, layers, run]);
}

interface LayersProps {
  readonly run: RunSummary;
  /** The other runs of a view of several layers; null for a view of one layer, whose chips change the run. */
  readonly chosen: readonly string[] | null;
  readonly onChoose: (runs: readonly string[]) => void;
  /** At the end of the row. */
  readonly children?: ReactNode;
}

/** A chip per run of the language model, by layer; none if there is only one. */
export function Layers({ run, chosen, onChoose, children }: LayersProps) {
  const { data } = useQuery(routingOptionsQuery(run.name));
  const { runs } = useCurrentRun();
  const { edits } = useTray();
  const location = useLocation();
  // Until it is known which runs go together, those of the language model take their places.
  const together = data?.layers ?? runs.filter((other) => other !== run && other.language_model === run.language_model);
  const isSibling = ({ layer, language_model: model }: RunSummary) =>
    chosen === null && layer === run.layer && model === run.language_model;
  const all = runs
    .filter((one) => one.name === run.name || isSibling(one) || together.some(({ name }) => name === one.name))
    .toSorted((a, b) => a.layer - b.layer);
  const toggle = ({ name, layer }: RunSummary) => {
    const sameLayer = all.filter((other) => other.layer === layer).map((other) => other.name);
    const without = (chosen ?? []).filter((other) => !sameLayer.includes(other));
    onChoose(chosen?.includes(name) === true ? without : [...without, name]);
  };
  const chips = all.map((each) => {
    const isOwn = each.name === run.name;
    const isShown = isOwn || chosen?.includes(each.name) === true;
    const chip = {
      className: isShown ? "chip sel" : "chip",
      title: `${each.name}, ${methodName(each.method)} of layer ${each.layer}`,
      children: (
        <>
          <span className="sr">Layer </span>
          {layerLabel(each, all)}
        </>
      ),
    };
    return chosen === null ? (
      <Link
        key={each.name}
        {...chip}
        aria-current={isOwn || undefined}
        to={urlForRun(location, run.name, each.name, formatEdits(edits))}
      />
    ) : (
      <button
        key={each.name}
        {...chip}
        type="button"
        aria-pressed={isShown}
        disabled={isOwn}
        onClick={() => toggle(each)}
      />
    );
  });
  return (
    <div className="row wrap band layers">
      {all.length > 1 && (
        <div role="group" aria-label="Layers" className="row wrap">
          <span className="dim">{chosen === null ? "Layer" : "Layers"}</span>
          {chips}
        </div>
      )}
      {children}
    </div>
  );
}
