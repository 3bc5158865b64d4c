/** The expert's matches in other runs of the same layer, with chance levels. */

import { Link } from "react-router";

import type { ExpertRecurrence, ExpertRow, RecurrenceMatch } from "@/api/types";
import { Term } from "@/components/terms/term";
import { formatCount, formatFixed, formatFoundAgain } from "@/lib/text/format";

function verdict({ is_found, mutual }: RecurrenceMatch): string {
  if (is_found) return "found again";
  return mutual ? "not above chance" : "closer to another expert";
}

function MatchRows({ match }: { readonly match: RecurrenceMatch }) {
  const name = `${match.run} ${match.expert}`;
  const expertUrl = `/experts/${match.expert}?${new URLSearchParams({ run: match.run }).toString()}`;
  return (
    <tbody>
      <tr>
        <th scope="rowgroup" colSpan={3}>
          {match.is_indexed ? <Link to={expertUrl}>{name}</Link> : name}: {verdict(match)}
        </th>
      </tr>
      <tr>
        <th scope="row">Firing, cosine</th>
        <td className="num own">
          {formatFixed(match.firing_cosine)}{" "}
          <span className="dim">
            {formatFixed(match.firing_low)} to {formatFixed(match.firing_high)}
          </span>
        </td>
        <td className="num">{formatFixed(match.firing_chance)}</td>
      </tr>
      <tr>
        <th scope="row">Output, cosine</th>
        <td className="num own">{formatFixed(match.writing_cosine)}</td>
        <td className="num">{formatFixed(match.writing_chance)}</td>
      </tr>
    </tbody>
  );
}

interface RecurrenceProps {
  readonly recurrence: ExpertRecurrence;
  readonly row: ExpertRow;
}

export function Recurrence({ recurrence, row }: RecurrenceProps) {
  const { matches, min_tokens, tokens } = recurrence;
  return (
    <section>
      <div className="pane-h">
        <h2>
          <Term id="recurrence">Found again</Term>
        </h2>
        <span className="note">
          {row.compared_runs === null ? "not measured" : `in ${formatFoundAgain(row)} other runs`}
        </span>
      </div>
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
      <p className="ablation-note">
        Found again: each is the other’s best match, and both cosines exceed chance. Compared on {formatCount(tokens)}{" "}
        tokens; experts need {formatCount(min_tokens)} active ones.
        {matches.some(({ is_indexed: hasPage }) => !hasPage) && " Runs without a link have no index here."}
      </p>
    </section>
  );
}
