/** All lists of experts that people have made of a run, and its tags. */

import "./lists/lists-page.css";

import { useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useState } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/errors";
import { listsQuery, tagsQuery, useMakeList } from "@/api/lists";
import type { ListSummary, RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { WithRun } from "@/components/current-run";
import { usePageLinks } from "@/components/links";
import { useNow } from "@/components/now";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { formatAgo, formatCount } from "@/lib/format";

function MakeList({ run }: { readonly run: string }) {
  const [name, setName] = useState("");
  const making = useMakeList(run);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (name.trim() !== "") making.mutate({ name: name.trim(), experts: [] }, { onSuccess: () => setName("") });
  };
  return (
    <form className="make-list" onSubmit={submit}>
      <span className="field">
        <input
          aria-label="Name of a new list"
          placeholder="Name of a new list"
          maxLength={120}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
      </span>
      <Button type="submit" variant="primary" disabled={name.trim() === "" || making.isPending}>
        Make a list
      </Button>
      {making.error !== null && (
        <span className="bad" role="alert">
          {messageOf(making.error)}
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
  const { data } = useQuery(tagsQuery(run));
  const links = usePageLinks();
  if (data === undefined || data.tags.length === 0) return null;
  return (
    <section className="pane" aria-label="Tags">
      <div className="pane-h">
        <h2>Tags</h2>
        <span className="note">experts that share a word</span>
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
  if (data === undefined) return <LoadingState label="Loading the lists" rows={4} rowHeight={31} />;
  return (
    <div className="lists-page">
      <MakeList run={run.name} />
      {data.lists.length === 0 ? (
        <EmptyState title="No list yet">
          A list gathers experts in an order of your own, with a note on each, and can be exported. Name one here, or
          choose “Add to list” on any expert, on a selection, or in the tray.
        </EmptyState>
      ) : (
        <table className="grid plain">
          <thead>
            <tr>
              <th scope="col">List</th>
              <th scope="col" className="num">
                Experts
              </th>
              <th scope="col">Note</th>
              <th scope="col" className="num">
                Changed
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
