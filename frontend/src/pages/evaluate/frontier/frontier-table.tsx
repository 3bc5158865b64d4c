/** Every point of the frontier with its intervals, and its difference from the current run. */

import { Link } from "react-router";

import type { Estimate, Frontier, FrontierPoint } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { formatFixed, formatPercent, formatSigned } from "@/lib/text/format";

interface CellProps {
  readonly label: string;
  readonly estimate: Estimate | null;
  readonly text: (value: number) => string;
  readonly unit?: string;
}

/** A value with its interval; a dash if it was not measured. */
function Cell({ label, estimate, text, unit = "" }: CellProps) {
  return (
    <td className="num" data-label={label}>
      {estimate === null ? (
        <span className="dim">–</span>
      ) : (
        <>
          {text(estimate.value)}
          {unit}{" "}
          <span className="interval">
            {text(estimate.low)} to {text(estimate.high)}
          </span>
        </>
      )}
    </td>
  );
}

const fixed = (value: number) => formatFixed(value, 4);
const signed = (value: number) => formatSigned(value, 4);
const percent = (share: number) => formatPercent(share, 1);

interface RowProps {
  readonly point: FrontierPoint;
  readonly name: string;
  readonly own: string;
}

function Row({ point, name, own }: RowProps) {
  const [run] = point.runs;
  return (
    <tr>
      <th scope="row">
        {run === undefined ? (
          name
        ) : (
          <Link className="link" to={pageLinks(null).run(run)}>
            {name}
          </Link>
        )}
      </th>
      <td className="num" data-label="K">
        {point.k} {point.k !== point.trained_k && <span className="interval">trained at {point.trained_k}</span>}
      </td>
      <Cell label="Loss increase" estimate={point.loss_increase} text={fixed} />
      <Cell label={`${own} minus this`} estimate={point.difference} text={signed} />
      <Cell label="Normalised MSE" estimate={point.normalized_mse} text={fixed} />
      <Cell label="Routing share" estimate={point.routing_share} text={percent} unit=" %" />
      <Cell label="Strict routing share" estimate={point.strict_routing_share} text={percent} unit=" %" />
    </tr>
  );
}

export function FrontierTable({ frontier, own }: { readonly frontier: Frontier; readonly own: string }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="facts-table stacked frontier-table" tabIndex={0} role="region" aria-label="Points of the frontier">
      <table className="grid plain">
        <thead>
          <tr>
            <th>Run</th>
            <th className="num">
              <Term id="k">K</Term>
            </th>
            <th className="num">
              <Term id="loss_increase_of_run">Loss increase</Term>, nats
            </th>
            <th className="num">{own} minus this, nats</th>
            <th className="num">
              <Term id="normalised_mse">Normalised MSE</Term>
            </th>
            <th className="num">
              <Term id="routing_share">Routing share</Term>
            </th>
            <th className="num">
              <Term id="strict_routing_share">Strict routing share</Term>
            </th>
          </tr>
        </thead>
        <tbody>
          {frontier.lines.flatMap((line) =>
            line.points.map((point) => (
              <Row key={`${line.name} ${point.k}`} point={point} name={line.name} own={own} />
            )),
          )}
        </tbody>
      </table>
    </div>
  );
}
