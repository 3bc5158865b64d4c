/** Table of the experts that match words, with the reason of each match. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { expertsQuery } from "@/api/queries";
import type { ExpertRow, SearchHit } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { MatchedText } from "@/components/layout/search/matched-text";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatFoundAgain, formatProbability, formatShare } from "@/lib/text/format";

interface ReasonProps {
  readonly hit: SearchHit;
  readonly text: string;
}

function Reason({ hit, text }: ReasonProps) {
  if (hit.matched === "id") return <>number {hit.expert}</>;
  if (hit.matched === "label") return hit.label === null ? "automatic label" : "user label";
  if (hit.example !== null) return <MatchedText context={hit.example} query={text} />;
  if (hit.token === null || hit.token_share === null) return null;
  return (
    <>
      {hit.matched === "related" ? "related word: " : "top token: "}
      <TokenChip text={hit.token} /> {formatProbability(hit.token_share)} %
    </>
  );
}

interface HitRowProps extends ReasonProps {
  readonly run: string;
  readonly row: ExpertRow | undefined;
  readonly withRecurrence: boolean;
}

function HitRow({ run, hit, row, text, withRecurrence }: HitRowProps) {
  const links = pageLinks(run);
  return (
    <tr>
      <td className="c-plus">
        <PlusButton expert={hit.expert} run={run} />
      </td>
      <td className="num mono">{hit.expert}</td>
      <td className="s-label">
        <Link to={links.expert(hit.expert)}>
          <ExpertLabel label={hit.label} automatic={hit.automatic} />
          {hit.label === null && <span className="sr">Expert {hit.expert}</span>}
        </Link>
      </td>
      <td className="s-reason">
        <Reason hit={hit} text={text} />
      </td>
      <td className="num">{row === undefined ? "" : formatShare(row.density)}</td>
      {withRecurrence && <td className="num">{row === undefined ? "" : formatFoundAgain(row)}</td>}
      <td className="s-tokens">
        {row?.top_tokens.slice(0, 4).map((token) => (
          <TokenChip key={token.id} text={token.text} />
        ))}
      </td>
    </tr>
  );
}

function useRows(run: string, hits: readonly SearchHit[]): ReadonlyMap<number, ExpertRow> {
  const filters = { sort: "expert", order: "asc", among: hits.map((hit) => hit.expert).join(",") } as const;
  const { data } = useInfiniteQuery(expertsQuery(run, filters, hits.length));
  return new Map(data?.pages[0]?.experts.map((row) => [row.expert, row]));
}

interface WordHitsProps {
  readonly run: string;
  readonly text: string;
  readonly hits: readonly SearchHit[];
}

export function WordHits({ run, text, hits }: WordHitsProps) {
  const rows = useRows(run, hits);
  const withRecurrence = [...rows.values()].some(({ recurrence }) => recurrence !== null);
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="passage-hits" tabIndex={0} role="region" aria-label={`Table of ${run}`}>
      <table className="grid plain word-hits">
        <thead>
          <tr>
            <th className="c-plus" scope="col">
              <span className="sr">Tray</span>
            </th>
            <th scope="col" className="num s-id">
              Id
            </th>
            <th scope="col">Label</th>
            <th scope="col">Match</th>
            <th scope="col" className="num s-density">
              <Term id="density">Density, %</Term>
            </th>
            {withRecurrence && (
              <th scope="col" className="num s-density">
                <Term id="recurrence">Found again</Term>
              </th>
            )}
            <th scope="col">
              <Term id="top_tokens">Top tokens</Term>
            </th>
          </tr>
        </thead>
        <tbody>
          {hits.map((hit) => (
            <HitRow
              key={hit.expert}
              run={run}
              hit={hit}
              row={rows.get(hit.expert)}
              text={text}
              withRecurrence={withRecurrence}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}
