/** What a strength sweep shows, before there is one: the stored texts of the demo's session, by strength. */

import { useQuery } from "@tanstack/react-query";

import { showcaseQuery } from "@/api/queries";
import { pageLinks } from "@/components/runs/page-links";
import { LinkButton } from "@/components/ui/button";
import { formatEdits } from "@/lib/edits/edits";
import { toOneLine } from "@/lib/text/token-text";
import { requestEdits } from "@/pages/steer/steering/steering-params";

/** As many as a sweep measures. */
const MAX_TEXTS = 6;

export function ExampleSweep() {
  const { data } = useQuery(showcaseQuery);
  if (data === undefined) return <div className="sweep-room" />;
  if (data.showcase === null) return null;
  const { session, title, texts } = data.showcase;
  const { run, steering } = session;
  const { prompt = "", edits = [] } = steering;
  const every = Math.ceil(texts.length / MAX_TEXTS);
  const shown = texts.filter((_, i) => i % every === 0);
  return (
    <section className="strength-sweep" aria-label="Example of a sweep">
      <div className="pane-h wrap">
        <h2>Example: {title}</h2>
        <span className="note">
          “{toOneLine(prompt, true)} …” with experts {edits.map(({ expert }) => expert).join(" and ")} of {run}, texts
          at {shown.length} strengths
        </span>
        <span className="grow" />
        <LinkButton
          icon="chart"
          to={pageLinks(run).page("strength", { prompt, edits: formatEdits(requestEdits(edits)) })}
        >
          Use this example
        </LinkButton>
      </div>
      <table className="sweep-table">
        <thead>
          <tr>
            <th scope="col">Strength</th>
            <th scope="col">Steered text</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(({ strength, tokens }) => (
            <tr key={strength}>
              <th scope="row">{strength === 0 ? "0, original" : `+${strength}`}</th>
              <td className="sweep-text">…{toOneLine(tokens.map(({ text }) => text).join(""), true)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
