/** What was measured of both runs on the same text. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { evaluationsQuery } from "@/api/queries";
import type { Fact } from "@/api/types";
import { Command } from "@/components/command";
import { pageLinks } from "@/components/links";
import { shown } from "@/components/facts-table";
import { shortSource } from "@/components/run-words";
import { ErrorState, LoadingState } from "@/components/states";
import { formatCount } from "@/lib/format";

import { commonEvaluation, factPairs, type CommonEvaluation } from "./common-evaluation";

interface EvaluationsProps {
  readonly one: string;
  readonly other: string;
}

function Value({ fact }: { readonly fact: Fact }) {
  const { value, low, high, unit } = fact;
  return (
    <td className="num">
      {shown(value, unit)}
      {low !== null && low !== undefined && (
        <span className="interval">
          {shown(low, unit)} to {shown(high, unit)}
        </span>
      )}
    </td>
  );
}

function Figures({ found }: { readonly found: CommonEvaluation }) {
  const pairs = [
    ...factPairs(found.one.faithfulness, found.other.faithfulness),
    ...factPairs(found.one.health, found.other.health),
  ];
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a box that scrolls must be reachable by key
    <div className="facts-table" tabIndex={0} role="region" aria-label="Evaluations of both runs">
      <table className="grid plain">
        <thead>
          <tr>
            <th scope="col">Figure</th>
            <th scope="col" className="num mono">
              {found.one.run}
            </th>
            <th scope="col" className="num mono">
              {found.other.run}
            </th>
          </tr>
        </thead>
        <tbody>
          {pairs.map(({ name, one, other }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <Value fact={one} />
              <Value fact={other} />
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Evaluations({ one, other }: EvaluationsProps) {
  const queries = [useQuery(evaluationsQuery(one)), useQuery(evaluationsQuery(other))] as const;
  const failed = queries.find(({ error, data }) => error !== null && data === undefined);
  if (failed !== undefined) return <ErrorState error={failed.error} onRetry={() => void failed.refetch()} />;
  const [ones, others] = queries;
  if (ones.data === undefined || others.data === undefined) return <LoadingState label="Loading the evaluations" />;
  const found = commonEvaluation(ones.data.evaluations, others.data.evaluations);
  return (
    <section className="pane compare-evaluation">
      <div className="pane-h">
        <h2>Evaluation</h2>
        {found !== null && (
          <>
            <span className="note">
              {formatCount(found.one.tokens)} tokens of {shortSource(found.one.text)}
            </span>
            <span className="grow" />
            <Link className="link" to={pageLinks(one).page("faithfulness")}>
              What they mean
            </Link>
          </>
        )}
      </div>
      {found === null ? (
        <>
          <p className="ink2">The two have not been measured on the same text; one command does both:</p>
          <Command text={`mxd evaluate ${one} ${other} --text HELD_OUT_TEXT --tokens 100k`} />
        </>
      ) : (
        <Figures found={found} />
      )}
    </section>
  );
}
