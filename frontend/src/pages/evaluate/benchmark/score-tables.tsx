/** Tables of mean scores and of differences from the first run, with intervals over data sets. */

import type { ReactNode } from "react";
import { Link } from "react-router";

import type { BenchmarkSubject, BenchmarkSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";

import { formatScore } from "./benchmark-figure";
import { formatDifference, signOf, unitsLabel } from "./benchmark-verdict";

/** The name of a subject, with a link if it is a run of this database. */
function SubjectName({ subject: { name, kind } }: { readonly subject: BenchmarkSubject }) {
  const { runs } = useCurrentRun();
  if (kind !== "run") return name;
  if (!runs.some((run) => run.name === name)) return <span className="mono">{name}</span>;
  return (
    <Link className="link mono" to={pageLinks(name).run(name)}>
      {name}
    </Link>
  );
}

interface ScrolledTableProps {
  readonly label: string;
  readonly head: ReactNode;
  readonly children: ReactNode;
}

function ScrolledTable({ label, head, children }: ScrolledTableProps) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="facts-table stacked" tabIndex={0} role="region" aria-label={label}>
      <table className="grid plain">
        <thead>
          <tr>{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

interface TableProps {
  readonly summary: BenchmarkSummary;
}

export function ScoreTable({ summary: { settings, subjects, scores } }: TableProps) {
  const score = (subject: string, units: number) =>
    scores.find((one) => one.subject === subject && one.units === units);
  const head = (
    <>
      <th>Subject</th>
      {settings.units.map((units) => (
        <th key={units} className="num">
          {unitsLabel(units)}
        </th>
      ))}
    </>
  );
  return (
    <ScrolledTable label="Scores" head={head}>
      {subjects.map((subject) => (
        <tr key={subject.name}>
          <th scope="row">
            <SubjectName subject={subject} />
          </th>
          {settings.units.map((units) => {
            const found = score(subject.name, units);
            return (
              <td key={units} className="num" data-label={unitsLabel(units)}>
                {found === undefined ? "–" : formatScore(found)}
              </td>
            );
          })}
        </tr>
      ))}
    </ScrolledTable>
  );
}

export function DifferenceTable({ summary: { subjects, differences, datasets } }: TableProps) {
  const first = subjects[0];
  if (first === undefined) return null;
  const head = (
    <>
      <th>
        <SubjectName subject={first} /> minus
      </th>
      <th className="num">Units per probe</th>
      <th className="num">
        Difference (<Term id="interval">95 % interval</Term>)
      </th>
      <th className="num">Higher on</th>
    </>
  );
  const rows = subjects.flatMap((subject) =>
    differences.filter((one) => one.subject === subject.name).map((difference) => ({ subject, difference })),
  );
  return (
    <ScrolledTable label="Differences" head={head}>
      {rows.map(({ subject, difference }) => (
        <tr key={`${subject.name} ${difference.units}`}>
          <th scope="row">
            <SubjectName subject={subject} />
          </th>
          <td className="num">{unitsLabel(difference.units)}</td>
          <td className="num" data-label="Difference">
            {signOf(difference, datasets.length) === "no" ? (
              formatDifference(difference)
            ) : (
              <b>{formatDifference(difference)}</b>
            )}
          </td>
          <td className="num" data-label="Higher on">
            {difference.better} of {datasets.length} data sets
          </td>
        </tr>
      ))}
    </ScrolledTable>
  );
}
