/** What a strength sweep shows, before there is one: the stored texts of the demo's session, by strength. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { showcaseQuery } from "@/api/queries";
import type { Showcase } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { LinkButton } from "@/components/ui/button";
import { LoadingState } from "@/components/ui/states";
import { formatEdits } from "@/lib/edits/edits";
import { toOneLine } from "@/lib/text/token-text";
import { requestEdits } from "@/pages/steer/steering/steering-params";

/** As many as a sweep measures. */
const MAX_TEXTS = 6;

/** The example, and then the rest of the page, which would otherwise be pushed down by it. */
export function ExampleSweep({ children }: { readonly children: ReactNode }) {
  const { data, isPending } = useQuery(showcaseQuery);
  if (isPending) return <LoadingState label="Loading the example" rows={22} />;
  return (
    <>
      {data?.showcase && <StoredSweep showcase={data.showcase} />}
      {children}
    </>
  );
}

function StoredSweep({ showcase: { session, title, texts } }: { readonly showcase: Showcase }) {
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
          variant="primary"
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
      <p className="sweep-sample dim">
        A sweep also measures how strongly the concept comes out, beside a random expert of similar density, and how
        fluent the texts stay. It then suggests the smallest strength that clearly exceeds the control.
      </p>
    </section>
  );
}
