/** A list of experts with order, notes and export. */

import "@/pages/explore/lists/lists-page.css";

import { useQuery } from "@tanstack/react-query";
import { useParams } from "react-router";

import { listQuery, useReorderList } from "@/api/lists";
import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { moveItem } from "@/lib/rows/move-item";
import type { TermId } from "@/lib/text/glossary";
import { EntryRow } from "@/pages/explore/lists/entry-row";
import { ListHead } from "@/pages/explore/lists/list-head";

import { RemovedEntry, useRemoval } from "./removed-entry";

const COLUMNS: readonly (readonly [string, string, TermId?])[] = [
  ["", "c-plus"],
  ["Id", "num", "expert"],
  ["Label", ""],
  ["Density, %", "num", "density"],
  ["Max act.", "num", "max_activation"],
  ["Top tokens", "l-tokens", "top_tokens"],
  ["Note", ""],
];

function ListView({ run, id }: { readonly run: RunSummary; readonly id: number }) {
  const { data, error, refetch } = useQuery(listQuery(run.name, id));
  const order = useReorderList(run.name, id);
  const { last, restored, remove, error: removalError, onRestored } = useRemoval(run.name, id);
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading list" rows={8} rowHeight={31} />;
  const failure = order.error ?? removalError;
  const experts = data.entries.map((entry) => entry.row.expert);
  return (
    <div className="lists-page">
      <title>{`${data.list.name} · MxD Explorer`}</title>
      <ListHead run={run.name} data={data} />
      {last !== null && <RemovedEntry run={run.name} list={id} {...last} experts={experts} onRestored={onRestored} />}
      {data.entries.length === 0 ? (
        <EmptyState title="This list is empty">
          Open an expert and choose “Add to list”, or lasso experts on the Experts page and add the selection.
        </EmptyState>
      ) : (
        <table className="grid plain entries" aria-busy={order.isPending}>
          <thead>
            <tr>
              {COLUMNS.map(([name, className, term]) => (
                <th key={name} className={className} scope="col">
                  {name === "" ? (
                    <span className="sr">Tray</span>
                  ) : term === undefined ? (
                    name
                  ) : (
                    <Term id={term}>{name}</Term>
                  )}
                </th>
              ))}
              <th scope="col">
                <span className="sr">Order</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.entries.map((entry, index) => (
              <EntryRow
                key={entry.row.expert}
                run={run.name}
                list={id}
                entry={entry}
                isFirst={index === 0}
                isLast={index === experts.length - 1}
                isRestored={entry.row.expert === restored}
                onRemove={() => remove({ entry, index })}
                onMove={(offset) => order.mutate(moveItem(experts, index, index + offset))}
              />
            ))}
          </tbody>
        </table>
      )}
      {failure !== null && <ErrorState error={failure} />}
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
            <ListView key={list} run={run} id={Number(list)} />
          ) : (
            <EmptyState title={`List ${list} not found`}>
              Lists are identified by number. Choose one from the list of lists.
            </EmptyState>
          )
        }
      </WithRun>
    </>
  );
}
