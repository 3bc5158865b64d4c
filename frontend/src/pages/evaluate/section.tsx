/** A section of the report: its result in a sentence, a figure, tables, and the commands that measure it. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "react-router";

import { figureQuery } from "@/api/queries";
import type { ReportWarning, Section, SectionFigure } from "@/api/types";
import { FigureView } from "@/components/plots/figure-view";
import { usePageLinks } from "@/components/runs/page-links";
import { LinkedText } from "@/components/terms/term";
import { Command } from "@/components/ui/copy-button";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { textParam, useUrlState } from "@/hooks/use-url-state";

import { DotTable } from "./dots";

const PARAMS = { metric: textParam(null) };

/** One of several tables of the same rows; the address says which. */
function Tables({ title, tables }: Pick<Section, "title" | "tables">) {
  const [{ metric }, setParams] = useUrlState(PARAMS);
  const shown = tables.find(({ key }) => key === metric) ?? tables[0];
  if (shown === undefined) return null;
  return (
    <>
      {tables.length > 1 && (
        <SegmentedControl
          label="Metric"
          value={shown.key}
          onChange={(chosen) => setParams({ metric: chosen })}
          segments={tables.map(({ key, title }) => ({ value: key, label: title }))}
        />
      )}
      <DotTable table={shown} label={title === "" ? shown.title : `${title}: ${shown.title}`} />
    </>
  );
}

/** Characters of a note that is not folded. */
const LONG_NOTE = 600;

/** A note. A long list is folded behind the words before its colon. */
function Note({ text }: { readonly text: string }) {
  const note = (
    <p className="note">
      <LinkedText text={text} />
    </p>
  );
  if (text.length < LONG_NOTE || !/^[\w ]+:/.test(text)) return note;
  return (
    <details className="more-metrics">
      <summary>{text.slice(0, text.indexOf(":"))}</summary>
      {note}
    </details>
  );
}

const WARNING_LEVELS = { alarm: "Alarm", warning: "Warning", note: "Note" } as const;

function Warnings({ warnings }: { readonly warnings: readonly ReportWarning[] }) {
  if (warnings.length === 0) return null;
  return (
    <ul className="warnings" aria-label="Warnings">
      {warnings.map(({ level, text }) => (
        <li key={text} data-level={level}>
          <strong>{WARNING_LEVELS[level]}:</strong> {text}
        </li>
      ))}
    </ul>
  );
}

/** Height of the line above a figure, in pixels. */
const HEADING_HEIGHT = 46;

/** The figure in its place, which is kept until it has loaded. A click on a run's point opens the run. */
function Figure({ run, figure: { name, note, height } }: { readonly run: string; readonly figure: SectionFigure }) {
  const links = usePageLinks();
  const navigate = useNavigate();
  const { data, error, refetch } = useQuery(figureQuery(name, { run }));
  return (
    <div style={{ minHeight: height + HEADING_HEIGHT }}>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <LoadingState label="Loading figure" rows={8} rowHeight={32} />}
      {data !== undefined && (
        <FigureView
          figure={data}
          note={note}
          height={height}
          onClick={({ key }) => {
            const [name] = [key].flat();
            if (typeof name === "string") void navigate(links.run(name));
          }}
        />
      )}
    </div>
  );
}

/** A sentence whose lines do not end within the name of a run. */
const WholeNames = ({ text }: { readonly text: string }) =>
  text.split(/(\S*-\S*)/).map((part, i) => (i % 2 === 0 ? part : <span key={i}>{part}</span>));

export function SectionView({ run, section }: { readonly run: string; readonly section: Section }) {
  const { title, verdict, intro, warnings, figure, tables, notes, commands } = section;
  const heading = title === "" && verdict === "" ? (tables[0]?.title ?? "") : title;
  return (
    <section className="pane settings stack report-section">
      {heading !== "" && <h2>{heading}</h2>}
      {verdict !== "" &&
        (title === "" ? (
          <h2 className="report-verdict">
            <WholeNames text={verdict} />
          </h2>
        ) : (
          <p>{verdict}</p>
        ))}
      {title !== "" && intro.map((text) => <Note key={text} text={text} />)}
      <Warnings warnings={warnings} />
      {figure !== null && <Figure run={run} figure={figure} />}
      <Tables title={title} tables={tables} />
      {title === "" && intro.map((text) => <Note key={text} text={text} />)}
      {notes.length > 0 && (
        <div className="stack dim">
          {notes.map((text) => (
            <Note key={text} text={text} />
          ))}
        </div>
      )}
      {commands.map((command) => (
        <Command key={command} text={command} />
      ))}
    </section>
  );
}
