/** Evaluate: the report on the current run; its verdict and the health of its experts are open, details are folded. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./evaluate.css";

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { useLocation, useNavigate } from "react-router";

import { reportQuery } from "@/api/queries";
import type { Chapter, RunSummary, Section } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { WithRun } from "@/components/runs/current-run";
import { ErrorState, LoadingState } from "@/components/ui/states";

import { Matches } from "./matches";
import { partsOf } from "./parts";
import { SectionView } from "./section";

interface FoldProps {
  readonly id: string;
  /** Hashes of the address that open it, without the id. */
  readonly names?: readonly string[];
  readonly title: string;
  readonly note: string;
  readonly children: ReactNode;
}

/** A closed part, which is rendered once it is opened. The address names the one that was opened last. */
function Fold({ id, names = [], title, note, children }: FoldProps) {
  const { hash, search, pathname } = useLocation();
  const navigate = useNavigate();
  const isNamed = [id, ...names].includes(hash.slice(1));
  const [isOpen, setOpen] = useState(isNamed);
  const element = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (isNamed && element.current !== null) element.current.open = true;
  }, [isNamed]);
  // Before its content, the page may be too short to show it at the top.
  useEffect(() => {
    if (isNamed && isOpen) element.current?.scrollIntoView({ block: "start" });
  }, [isNamed, isOpen]);
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

function Report({ run, chapters }: { readonly run: RunSummary; readonly chapters: readonly Chapter[] }) {
  const open = chapters.filter((chapter) => !chapter.is_folded);
  const parts = partsOf(chapters);
  const entries = [...open, ...parts, { key: "compare", title: "Compare" }];
  const { hash } = useLocation();
  // Only now is the page long enough for it.
  useEffect(() => {
    if (hash !== "") document.getElementById(hash.slice(1))?.scrollIntoView({ block: "start" });
  }, [hash]);
  const content = (sections: readonly Section[]) =>
    sections.map((section) => <SectionView key={section.key} run={run.name} section={section} />);
  return (
    <>
      <nav className="contents" aria-label="Chapters">
        {entries.map(({ key, title }) => (
          <a key={key} href={`#${key}`} aria-current={`#${key}` === hash ? "location" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {open.map(({ key, sections }) => (
        <div key={key} id={key}>
          {content(sections)}
        </div>
      ))}
      {parts.map(({ key, title, note, sections }) => {
        const inside = new Set(sections);
        const names = chapters.filter((chapter) => chapter.sections.some((section) => inside.has(section)));
        return (
          <Fold key={key} id={key} names={names.map((chapter) => chapter.key)} title={title} note={note}>
            {content(sections)}
          </Fold>
        );
      })}
      <Fold id="compare" title="Compare" note="experts matched with another run, and the settings that differ">
        <Matches run={run} />
      </Fold>
      {hash !== "" && <div className="report-tail" />}
    </>
  );
}

function Evaluation({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(reportQuery(run.name));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the report" rows={20} rowHeight={36} />;
  return <Report run={run} chapters={data.chapters} />;
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
