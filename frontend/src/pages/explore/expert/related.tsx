/** Experts that are similar, active together, or the same in another run. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { similarQuery } from "@/api/queries";
import type {
  ExpertRecurrence,
  ExpertRow,
  RecurrenceMatch,
  SharedTokens,
  SimilarExpert,
  SimilarExperts,
} from "@/api/types";
import { ExpertLink } from "@/components/experts/expert-link";
import { Term } from "@/components/terms/term";
import { PlusButton } from "@/components/tray/tray-context";
import { GhostButton } from "@/components/ui/button";
import { PaneHead } from "@/components/ui/pane-head";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import {
  formatCompact,
  formatCount,
  formatFixed,
  formatFoundAgain,
  formatPercent,
  formatPlural,
} from "@/lib/text/format";
import { FoundTable } from "@/pages/explore/search/found-table";

import type { ExamplesProps } from "./examples";

/** Co-activating experts per list, and before all are shown. */
const MAX_COMPANIONS = 6;
const PREVIEW = 3;

interface CompanionListProps {
  readonly title: string;
  readonly expert: number;
  readonly companions: readonly SimilarExpert[];
}

/** Counts; with enough events, also the share with its interval and how often the usual rate it is. */
function CompanionCounts({ tokens, of_tokens: of, share, share_interval: interval, lift }: SharedTokens) {
  return (
    <span className="counts num">
      <span>
        {share !== null && `${formatPercent(share, 0)} % `}
        {lift !== null && <span className="dim">×{lift >= 10 ? formatCount(Math.round(lift)) : lift.toFixed(1)}</span>}
      </span>
      <span className="dim">
        {formatCompact(tokens)} of {formatCompact(of)}
        {interval !== null && `, ${formatPercent(interval[0], 0)} to ${formatPercent(interval[1], 0)} %`}
      </span>
    </span>
  );
}

function CompanionList({ title, expert, companions }: CompanionListProps) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {companions.length === 0 ? (
        <p className="dim">none</p>
      ) : (
        <ol>
          {companions.map((companion) => (
            <li key={companion.expert}>
              {companion.expert === expert ? (
                <span className="dim">the expert itself</span>
              ) : (
                <>
                  <ExpertLink {...companion} topTokens={companion.top_tokens} withPlus={false} />
                  <PlusButton expert={companion.expert} />
                </>
              )}
              {companion.shared !== null && <CompanionCounts {...companion.shared} />}
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** What the counts are worth. */
function explain(data: SimilarExperts): string {
  const active = formatCount(data.active_tokens ?? 0);
  const sampled = formatCount(data.sampled_tokens ?? 0);
  if (data.sampled_tokens === 0) return "The index has no token sample to count in. Index the run again.";
  if (data.active_tokens === 0) return `It is inactive on the ${sampled} sampled tokens.`;
  return data.enough_tokens
    ? `Counted on its ${active} active tokens in a sample of ${sampled}. Listed: experts that fire there more often than elsewhere, at least twice, by Jaccard index, each with the share of those tokens, × its usual rate, counts and interval. Intervals (95 %, Wilson) treat tokens as independent, so they are too narrow.`
    : `It is active on only ${active} of the ${sampled} sampled tokens: too few for percentages. The counts may be chance.`;
}

function Companions({ expert, data }: { readonly expert: number; readonly data: SimilarExperts }) {
  const [isAll, setAll] = useState(false);
  const lists = [
    ["Token before", data.before],
    ["Same token", data.experts],
    ["Token after", data.after],
  ] as const;
  const longest = Math.max(...lists.map(([, companions]) => companions.length));
  const explanation = <p className="ink2">{explain(data)}</p>;
  if (longest === 0) return explanation;
  return (
    <>
      {explanation}
      <div className="coactivation-lists">
        {lists.map(([title, companions]) => (
          <CompanionList
            key={title}
            title={title}
            expert={expert}
            companions={isAll ? companions : companions.slice(0, PREVIEW)}
          />
        ))}
      </div>
      {longest > PREVIEW && (
        <GhostButton className="show-all" aria-expanded={isAll} onClick={() => setAll(!isAll)}>
          {isAll ? `Show ${PREVIEW} of each` : `Show up to ${longest} of each`}
        </GhostButton>
      )}
    </>
  );
}

function MatchRows({ match }: { readonly match: RecurrenceMatch }) {
  const name = `${match.run} ${match.expert}`;
  const verdict = match.mutual ? "not above chance" : "closer to another expert";
  const expertUrl = `/experts/${match.expert}?${new URLSearchParams({ run: match.run }).toString()}`;
  return (
    <tbody>
      <tr>
        <th scope="rowgroup" colSpan={3}>
          {match.is_indexed ? <Link to={expertUrl}>{name}</Link> : name}: {match.is_found ? "found again" : verdict}
        </th>
      </tr>
      {(["firing", "writing"] as const).map((kind) => (
        <tr key={kind}>
          <th scope="row">{kind === "firing" ? "Firing" : "Output"}, cosine</th>
          <td className="num own">
            {formatFixed(match[`${kind}_cosine`])}{" "}
            {kind === "firing" && (
              <span className="dim">
                {formatFixed(match.firing_low)} to {formatFixed(match.firing_high)}
              </span>
            )}
          </td>
          <td className="num">{formatFixed(match[`${kind}_chance`])}</td>
        </tr>
      ))}
    </tbody>
  );
}

/** The expert's matches in other runs of the same layer, with chance levels. */
export function Recurrence({ recurrence, row }: { readonly recurrence: ExpertRecurrence; readonly row: ExpertRow }) {
  const { matches, min_tokens, tokens } = recurrence;
  return (
    <section>
      <PaneHead
        title="Found again"
        term="recurrence"
        note={row.compared_runs === null ? "not measured" : `in ${formatFoundAgain(row)} other runs`}
      />
      {matches.length > 0 && (
        <table className="ablation-effects recurrence">
          <thead>
            <tr>
              <th>Best match</th>
              <th className="num">Cosine (95 %)</th>
              <th className="num">
                <Term id="recurrence_chance">Chance</Term>
              </th>
            </tr>
          </thead>
          {matches.map((match) => (
            <MatchRows key={match.run} match={match} />
          ))}
        </table>
      )}
      <p className="ink2">
        Found again: each is the other’s best match, and both cosines exceed chance. Compared on {formatCount(tokens)}{" "}
        tokens; experts need {formatCount(min_tokens)} active ones.
      </p>
    </section>
  );
}

export function Similar({ run, detail, params: { by }, setParams }: ExamplesProps) {
  const { expert } = detail.row;
  const isCoactive = by === "coactivation";
  const { data, error, isPending } = useQuery(similarQuery(run, expert, by, isCoactive ? MAX_COMPANIONS : undefined));
  return (
    <section className="pane coactivation">
      <div className="row pane-h">
        <h2>
          <Term id="similar">Similar experts</Term>
        </h2>
        <span className="note">by</span>
        <SegmentedControl
          label="Similar by"
          value={by}
          onChange={(chosen) => setParams({ by: chosen })}
          segments={segmentsOf({ gate: "gate", output: "output", tokens: "tokens", coactivation: "co-activation" })}
        />
      </div>
      {error !== null && <ErrorState error={error} />}
      {isPending && <LoadingState label="Loading similar experts" rows={5} />}
      {data !== undefined && isCoactive && <Companions expert={expert} data={data} />}
      {data !== undefined && !isCoactive && (
        <>
          <p className="ink2">
            {data.active_tokens !== null &&
              `Counted on ${formatPlural(data.active_tokens, "token")} of a sample on which it is active${data.enough_tokens ? "" : ": too few to rely on"}. `}
            {data.p95 !== null && `95 % of the other experts have at most ${formatFixed(data.p95)}.`}
          </p>
          <FoundTable
            label="Similar experts"
            rows={data.experts}
            found={(similar) => ({ ...similar, topTokens: similar.top_tokens })}
            withTokens={false}
            columns={[
              {
                ...{ key: "cosine", name: "Cosine", isNumber: true, isSorted: true },
                cell: ({ similarity }) => formatFixed(similarity),
              },
            ]}
          />
        </>
      )}
    </section>
  );
}
