/** All lists and tags of a run. */

import { useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useState } from "react";
import { Link, useNavigate } from "react-router";

import { messageOf } from "@/api/http/errors";
import { listsQuery, useCreateList } from "@/api/lists";
import type { ExpertRow, ListSummary, RunSummary } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useBestExperts } from "@/hooks/use-best-experts";
import { useNow } from "@/hooks/use-now";
import { formatAgo, formatCount, formatShare } from "@/lib/text/format";

import "./lists-page.css";

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

/** What lists are for, with an example from the run that can be created, as long as there are none. */
function FirstList({ run }: { readonly run: string }) {
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

function NewListForm({ run }: { readonly run: string }) {
  const [name, setName] = useState("");
  const creation = useCreateList(run);
  const navigate = useNavigate();
  const links = usePageLinks();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (name.trim() === "") return;
    const onSuccess = ({ id }: { readonly id: number }) => void navigate(links.list(id));
    creation.mutate({ name: name.trim(), experts: [] }, { onSuccess });
  };
  return (
    <form className="new-list-form" onSubmit={submit}>
      <span className="field">
        <input
          aria-label="New list name"
          placeholder="New list name"
          maxLength={120}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
      </span>
      <Button type="submit" variant="primary" disabled={name.trim() === "" || creation.isPending}>
        Create list
      </Button>
      {creation.error !== null && (
        <span className="bad" role="alert">
          {messageOf(creation.error)}
        </span>
      )}
    </form>
  );
}

function ListRow({ list, now }: { readonly list: ListSummary; readonly now: number }) {
  const links = usePageLinks();
  return (
    <tr>
      <td className="l-name">
        <Link to={links.list(list.id)}>{list.name}</Link>
      </td>
      <td className="num">{formatCount(list.experts)}</td>
      <td className="l-note dim">{list.note}</td>
      <td className="num dim">{formatAgo(list.updated_at, now)}</td>
    </tr>
  );
}

function Tags({ run }: { readonly run: string }) {
  const { data } = useQuery(listsQuery(run));
  const links = usePageLinks();
  if (data === undefined || data.tags.length === 0) return null;
  return (
    <section className="pane" aria-label="Tags">
      <div className="pane-h">
        <h2>Tags</h2>
        <span className="note">words shared by several experts</span>
      </div>
      <p className="chips">
        {data.tags.map((tag) => (
          <Link key={tag.tag} className="chip" to={links.page("experts", { tag: tag.tag })}>
            {tag.tag} <span className="dim">{formatCount(tag.experts)}</span>
          </Link>
        ))}
      </p>
    </section>
  );
}

function ListsView({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(listsQuery(run.name));
  const now = useNow(10_000);
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading lists" rows={4} rowHeight={31} />;
  return (
    <div className="lists-page">
      <NewListForm run={run.name} />
      {data.lists.length === 0 ? (
        <FirstList run={run.name} />
      ) : (
        <table className="grid plain">
          <thead>
            <tr>
              <th scope="col">List</th>
              <th scope="col" className="num">
                Experts
              </th>
              <th scope="col" className="l-note-head">
                Description
              </th>
              <th scope="col" className="num">
                Updated
              </th>
            </tr>
          </thead>
          <tbody>
            {data.lists.map((list) => (
              <ListRow key={list.id} list={list} now={now} />
            ))}
          </tbody>
        </table>
      )}
      <Tags run={run.name} />
    </div>
  );
}

export default function ListsPage() {
  return (
    <>
      <title>Lists · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Lists" }]} />
      <WithRun>{(run) => <ListsView run={run} />}</WithRun>
    </>
  );
}
