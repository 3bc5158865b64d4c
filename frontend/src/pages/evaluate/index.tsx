/** Evaluate: the verdict on the runs of one MLP, the health of the current run's experts, and all other results folded. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./evaluate.css";

import { type ReactNode, useEffect, useRef } from "react";
import { useLocation, useNavigate } from "react-router";

import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { WithRun } from "@/components/runs/current-run";

import { Benchmark } from "./benchmark";
import { Faithfulness, Health } from "./evaluation";
import { Frontier } from "./frontier";
import { Matches } from "./matches";
import { Probes } from "./probes";
import { Verdict } from "./verdict";

interface FoldProps {
  /** Hash of the address that opens it. */
  readonly id: string;
  readonly title: string;
  readonly note: string;
  readonly children: ReactNode;
}

/** A closed section; the address says which one is open, and only that one is rendered. */
function Fold({ id, title, note, children }: FoldProps) {
  const { hash, search, pathname } = useLocation();
  const navigate = useNavigate();
  const isOpen = hash === `#${id}`;
  const element = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (isOpen) element.current?.scrollIntoView({ block: "start" });
  }, [isOpen]);
  return (
    <details className="fold" ref={element} open={isOpen}>
      <summary
        onClick={(event) => {
          event.preventDefault();
          void navigate({ pathname, search, hash: isOpen ? "" : id }, { replace: true, preventScrollReset: true });
        }}
      >
        <b>{title}</b> <span className="note">{note}</span>
      </summary>
      {isOpen && children}
    </details>
  );
}

function Evaluation({ run }: { readonly run: RunSummary }) {
  return (
    <>
      <Verdict run={run} />
      <Health run={run} />
      <Fold id="faithfulness" title="Faithfulness" note={`all metrics of ${run.name}, on every text`}>
        <Faithfulness run={run} />
      </Fold>
      <Fold id="frontier" title="Frontier" note={`loss and error of the runs of layer ${run.layer} by K`}>
        <Frontier run={run} />
      </Fold>
      <Fold id="benchmark" title="Benchmark" note="sparse probes on the data sets of sae-probes">
        <Benchmark run={run} />
      </Fold>
      <Fold id="probing" title="Probing" note="single experts against neurons and a random gate, on labelled texts">
        <Probes run={run} />
      </Fold>
      <Fold id="compare" title="Compare" note="experts matched with another run, and the settings that differ">
        <Matches run={run} />
      </Fold>
    </>
  );
}

export default function EvaluatePage() {
  return (
    <>
      <title>Evaluate · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Evaluate" }]} />
      <WithRun>{(run) => <Evaluation key={run.name} run={run} />}</WithRun>
    </>
  );
}
