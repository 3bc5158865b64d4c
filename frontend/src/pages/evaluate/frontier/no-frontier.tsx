/** How to measure a frontier: a trained run at fewer active experts, or a run trained at another K. */

import { useQuery } from "@tanstack/react-query";
import { Fragment } from "react";
import { Link } from "react-router";

import { runQuery } from "@/api/queries";
import type { Frontier, RunSummary } from "@/api/types";
import { hasFrontier } from "@/components/layout/navigation/pages";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { trainCommand } from "@/components/runs/train-command";
import { Command } from "@/components/ui/copyable-command";

import { listed } from "./frontier-verdict";

/** A quarter and half of K, for a run whose weakest experts can be left out. */
const FEWER = [4, 2];
const NAMED_FRACTIONS = "a quarter and half of its experts";

const isSameMlp = (one: RunSummary, other: RunSummary) =>
  one.language_model === other.language_model && one.layer === other.layer;

/** The options of the run's own evaluation, so that the new one is on the same sequences. */
function sampleOptions({ held_out: found }: RunSummary): string {
  return found === null ? "--dataset HELD_OUT_TEXT --tokens 100k" : `--dataset ${found.text} --tokens ${found.tokens}`;
}

function fewerExperts(run: RunSummary): string {
  const ks = FEWER.map((factor) => Math.max(1, Math.round(run.k / factor)));
  return `mxd evaluate ${run.name} --k ${[...new Set([...ks, run.k])].join(",")} ${sampleOptions(run)}`;
}

/** Trains runs at these K, under names that the second command evaluates. */
function useCommandsAtK(run: RunSummary, ks: readonly number[]): readonly [string, string] {
  const config = useQuery(runQuery(run.name)).data?.config ?? {};
  const name = ks.length > 1 ? `${run.name}-k{k}` : `${run.name}-k${ks[0] ?? run.k}`;
  const names = ks.map((k) => `${run.name}-k${k}`).join(" ");
  return [
    trainCommand(run, config, { "--name": name, "--k": ks.join(",") }),
    `mxd evaluate ${names} ${sampleOptions(run)}`,
  ];
}

/** Commands for the K at which a run was only truncated. */
export function TrainAtTheseK({ run, frontier }: { readonly run: RunSummary; readonly frontier: Frontier }) {
  const points = frontier.lines.filter(({ own }) => own).flatMap((line) => line.points);
  const ks = points.filter(({ k, trained_k: trained }) => k < trained).map(({ k }) => k);
  const commands = useCommandsAtK(run, ks);
  if (ks.length === 0) return null;
  return (
    <details className="more-metrics no-frontier">
      <summary>Train runs at K = {listed(ks)}</summary>
      <p className="ink2">
        One pass over the activations trains runs that differ from {run.name} only in K. They are evaluated on the same
        sequences.
      </p>
      {commands.map((command) => (
        <Command key={command} text={command} />
      ))}
    </details>
  );
}

/** Layers that have a frontier, each with one of its runs. */
function LayersWithFrontier() {
  const { runs } = useCurrentRun();
  const found = runs.filter(
    (run, i) =>
      hasFrontier(runs.filter((other) => isSameMlp(run, other))) &&
      runs.findIndex((other) => isSameMlp(run, other)) === i,
  );
  if (found.length === 0) return null;
  return (
    <p>
      Layers with a frontier:{" "}
      {found.map(({ name, layer }, i) => (
        <Fragment key={name}>
          {i > 0 && ", "}
          <Link className="link" to={pageLinks(name).page("frontier")}>
            layer {layer}
          </Link>
        </Fragment>
      ))}
      .
    </p>
  );
}

export function NoFrontier({ run }: { readonly run: RunSummary }) {
  const [train, evaluate] = useCommandsAtK(run, [2 * run.k]);
  return (
    <section className="pane settings no-frontier">
      <h2>No frontier of layer {run.layer} yet</h2>
      <p className="ink2">
        A frontier shows how the loss increase of a layer falls as more experts are active per token. It needs one layer
        at two or more K. Layer {run.layer} was trained and evaluated at one K.
      </p>
      <LayersWithFrontier />
      {run.has_top_k && (
        <div>
          <h3>At fewer experts, without training</h3>
          <p className="ink2">
            Evaluates {run.name} with {NAMED_FRACTIONS}. A run that is trained at a smaller K usually loses less at it.
          </p>
          <Command text={fewerExperts(run)} />
        </div>
      )}
      <div>
        <h3>At twice the K</h3>
        <p className="ink2">Trains a run of layer {run.layer} that differs only in K, and evaluates it.</p>
        <Command text={train} />
        <Command text={evaluate} />
      </div>
    </section>
  );
}
