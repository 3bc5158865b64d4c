/** One list of experts: read, put in order, noted on, exported. */

import "./lists/lists-page.css";

import { useQuery } from "@tanstack/react-query";
import { useParams } from "react-router";

import { listQuery, useOrderList } from "@/api/lists";
import type { RunSummary } from "@/api/types";
import { useCurrentRun, WithRun } from "@/components/current-run";
import { usePageLinks } from "@/components/links";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { moved } from "@/lib/order";

import { EntryRow } from "./lists/entry-row";
import { ListHead } from "./lists/list-head";

const HEADS: readonly (readonly [string, string])[] = [
  ["", "c-plus"],
  ["Id", "num"],
  ["Label", ""],
  ["Usage, %", "num"],
  ["Largest", "num"],
  ["Top tokens", "l-tokens"],
  ["Why it is here", ""],
];

function ListView({ run, id }: { readonly run: RunSummary; readonly id: number }) {
  const { data, error, refetch } = useQuery(listQuery(run.name, id));
  const order = useOrderList(run.name, id);
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the list" rows={8} rowHeight={31} />;
  const experts = data.entries.map((entry) => entry.row.expert);
  return (
    <div className="lists-page">
      <title>{`${data.list.name} · MxD Explorer`}</title>
      <ListHead key={id} run={run.name} data={data} />
      {data.entries.length === 0 ? (
        <EmptyState title="Nothing in it yet">
          Open an expert and choose “Add to list”, or draw a lasso on the Experts page and add the whole selection.
        </EmptyState>
      ) : (
        <table className="grid plain entries" aria-busy={order.isPending}>
          <thead>
            <tr>
              {HEADS.map(([name, className]) => (
                <th key={name} className={className} scope="col">
                  {name === "" ? <span className="sr">Tray</span> : name}
                </th>
              ))}
              <th scope="col">
                <span className="sr">Order</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.entries.map((entry, place) => (
              <EntryRow
                key={entry.row.expert}
                run={run.name}
                list={id}
                entry={entry}
                isFirst={place === 0}
                isLast={place === experts.length - 1}
                onMove={(by) => order.mutate(moved(experts, place, place + by))}
              />
            ))}
          </tbody>
        </table>
      )}
      {order.error !== null && <ErrorState error={order.error} />}
    </div>
  );
}

function useListName(id: number | null): string | undefined {
  const { name: run } = useCurrentRun();
  const { data } = useQuery({ ...listQuery(run ?? "", id ?? 0), enabled: run !== null && id !== null });
  return data?.list.name;
}

export default function ListPage() {
  const { list = "" } = useParams();
  const links = usePageLinks();
  const isNumber = /^\d{1,9}$/.test(list);
  const name = useListName(isNumber ? Number(list) : null);
  return (
    <>
      <title>{`List ${list} · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: "Lists", to: links.page("lists") }, { label: name ?? list }]} />
      <WithRun>
        {(run) =>
          isNumber ? (
            <ListView run={run} id={Number(list)} />
          ) : (
            <EmptyState title={`${list} is no list`}>Lists go by number; choose one from all lists.</EmptyState>
          )
        }
      </WithRun>
    </>
  );
}
