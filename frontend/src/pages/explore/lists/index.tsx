/** All lists and tags of a run. */

import "./lists-page.css";

import { useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useState } from "react";
import { Link, useNavigate } from "react-router";

import { messageOf } from "@/api/http/errors";
import { listsQuery, useCreateList } from "@/api/lists";
import type { ListSummary, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useNow } from "@/hooks/use-now";
import { formatAgo, formatCount } from "@/lib/text/format";

import { FirstList } from "./first-list";

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
