/** What lists are for, with an example from the run that can be created, as long as there are none. */

import { useNavigate } from "react-router";

import { messageOf } from "@/api/http/errors";
import { useCreateList } from "@/api/lists";
import type { ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { useBestExperts } from "@/hooks/use-best-experts";
import { formatShare } from "@/lib/text/format";

const NUM_EXPERTS = 5;
const NAME = "Experts to start with";

function ExampleRows({ experts }: { readonly experts: readonly ExpertRow[] }) {
  return (
    <table className="grid plain" aria-label={`Example: ${NAME}`}>
      <thead>
        <tr>
          <th scope="col" className="num">
            Id
          </th>
          <th scope="col">Label</th>
          <th scope="col" className="num">
            Density, %
          </th>
          <th scope="col" className="l-tokens">
            Top tokens
          </th>
        </tr>
      </thead>
      <tbody>
        {experts.map((row) => (
          <tr key={row.expert}>
            <td className="num mono">{row.expert}</td>
            <td className="l-label">
              <ExpertLabel label={row.label} automatic={row.automatic} />
            </td>
            <td className="num">{formatShare(row.density)}</td>
            <td className="l-tokens">
              {row.top_tokens.slice(0, 4).map((token) => (
                <TokenChip key={token.id} text={token.text} />
              ))}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function ExampleList({ run }: { readonly run: string }) {
  const best = useBestExperts(run).experts.slice(0, NUM_EXPERTS);
  const creation = useCreateList(run);
  const navigate = useNavigate();
  const links = usePageLinks();
  if (best.length === 0) return null;
  // A callback of the mutation would be dropped: with the new list, this example is no longer on the page.
  const create = () =>
    creation.mutateAsync({ name: NAME, experts: best.map(({ expert }) => expert) }).then(
      ({ id }) => navigate(links.list(id)),
      () => undefined, // the page shows the error
    );
  return (
    <section className="pane first-list">
      <div className="pane-h">
        <h2>Example: {NAME}</h2>
        <span className="note">
          strong experts of {run} that are active on few tokens and kinds of token; labelled ones first
        </span>
        <span className="grow" />
        <Button onClick={() => void create()} disabled={creation.isPending}>
          Create this list
        </Button>
      </div>
      {creation.error !== null && (
        <p className="bad" role="alert">
          {messageOf(creation.error)}
        </p>
      )}
      <ExampleRows experts={best} />
    </section>
  );
}

export function FirstList({ run }: { readonly run: string }) {
  return (
    <>
      <section className="state">
        <h2>No lists yet</h2>
        <p>A list collects the experts of one question, such as candidates for a concept:</p>
        <ul className="uses">
          <li>
            <b>Collect</b> with “Add to list” on an expert, in search results, in a lasso selection or in the tray.
          </li>
          <li>
            <b>Work through it</b>: order the experts, write a note on each, correct labels in place.
          </li>
          <li>
            <b>Use it</b>: filter the Experts table by it, steer with all its experts, export it as CSV or JSON.
          </li>
        </ul>
      </section>
      <ExampleList run={run} />
    </>
  );
}
