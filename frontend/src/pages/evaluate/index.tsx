/** Evaluate: the report on the current run; the verdict and the health of its experts are open, all else is folded. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./evaluate.css";

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { useLocation, useNavigate } from "react-router";

import { reportQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { WithRun } from "@/components/runs/current-run";
import { ErrorState, LoadingState } from "@/components/ui/states";

import { Matches } from "./matches";
import { SectionView } from "./section";

interface FoldProps {
  /** Hash of the address that opens it. */
  readonly id: string;
  readonly title: string;
  readonly note: string;
  readonly children: ReactNode;
}

/** A closed chapter, which is rendered once it is opened. The address names the one that was opened last. */
function Fold({ id, title, note, children }: FoldProps) {
  const { hash, search, pathname } = useLocation();
  const navigate = useNavigate();
  const isNamed = hash === `#${id}`;
  const [isOpen, setOpen] = useState(isNamed);
  const element = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (!isNamed || element.current === null) return;
    element.current.open = true;
    element.current.scrollIntoView({ block: "start" });
  }, [isNamed]);
  const onToggle = (open: boolean) => {
    setOpen(open);
    if (open !== isNamed && (open || isNamed))
      void navigate({ pathname, search, hash: open ? id : "" }, { replace: true, preventScrollReset: true });
  };
  return (
    <details
      className="fold"
      id={id}
      ref={element}
      open={isOpen}
      onToggle={(event) => onToggle(event.currentTarget.open)}
    >
      <summary>
        <b>{title}</b> <span className="note">{note}</span>
      </summary>
      {isOpen && children}
    </details>
  );
}

function Evaluation({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(reportQuery(run.name));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the report" rows={20} rowHeight={36} />;
  return (
    <>
      <nav className="contents" aria-label="Chapters">
        {[...data.chapters, { key: "compare", title: "Compare" }].map(({ key, title }) => (
          <a key={key} href={`#${key}`}>
            {title}
          </a>
        ))}
      </nav>
      {data.chapters.map(({ key, title, note, is_folded: isFolded, sections }) => {
        const content = sections.map((section) => <SectionView key={section.key} run={run.name} section={section} />);
        if (!isFolded)
          return (
            <div key={key} id={key}>
              {content}
            </div>
          );
        return (
          <Fold key={key} id={key} title={title} note={note}>
            {content}
          </Fold>
        );
      })}
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
