/** Lists and tags as saved filters of the table, and the experts that it shows as a list. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";

import { listsQuery } from "@/api/lists";
import { expertsQuery } from "@/api/queries";
import { AddToList } from "@/components/lists/add-to-list";
import { usePageLinks } from "@/components/runs/page-links";
import { Button, LinkButton } from "@/components/ui/button";
import { formatCount } from "@/lib/text/format";
import { type ExpertsView, toFilters } from "@/pages/explore/experts/experts-params";

interface SavedListsProps {
  readonly run: string;
  readonly view: ExpertsView;
}

interface SavedFilterProps {
  readonly name: string;
  readonly experts: number;
  readonly isChosen: boolean;
  readonly onChoose: (isChosen: boolean) => void;
}

function SavedFilter({ name, experts, isChosen, onChoose }: SavedFilterProps) {
  return (
    <Button
      size="small"
      variant={isChosen ? "chosen" : "plain"}
      aria-pressed={isChosen}
      onClick={() => onChoose(!isChosen)}
    >
      {name} <span className="dim">{formatCount(experts)}</span>
    </Button>
  );
}

/** Adds the experts that match the filters to a list, or to a new one, once all of them are in the table. */
function AddMatching({ run, view }: SavedListsProps) {
  const { data, hasNextPage } = useInfiniteQuery(expertsQuery(run, toFilters(view)));
  const page = data?.pages[0];
  if (page === undefined || page.matching === page.total || hasNextPage) return null;
  const experts = data?.pages.flatMap((one) => one.experts.map(({ expert }) => expert)) ?? [];
  return (
    <AddToList run={run} experts={experts} className="btn sm" label={`Add ${formatCount(experts.length)} to list`} />
  );
}

export function SavedLists({ run, view }: SavedListsProps) {
  const { params, setParams } = view;
  const { data } = useQuery(listsQuery(run));
  const links = usePageLinks();
  return (
    <div className="saved-lists" role="group" aria-label="Lists and tags">
      <b>Lists</b>
      {data?.lists.map(({ id, name, experts }) => (
        <SavedFilter
          key={id}
          name={name}
          experts={experts}
          isChosen={params.list === id}
          onChoose={(isChosen) => setParams({ list: isChosen ? id : null }, "push")}
        />
      ))}
      {data?.lists.length === 0 && (
        <span className="dim wide-only">none yet; a list keeps the experts of a question, in order and with notes</span>
      )}
      {params.list !== null && (
        <LinkButton size="small" variant="ghost" icon="list" to={links.list(params.list)}>
          Open list: order, notes, export
        </LinkButton>
      )}
      {data !== undefined && data.tags.length > 0 && <b>Tags</b>}
      {data?.tags.map(({ tag, experts }) => (
        <SavedFilter
          key={tag}
          name={tag}
          experts={experts}
          isChosen={params.tag === tag}
          onChoose={(isChosen) => setParams({ tag: isChosen ? tag : "" }, "push")}
        />
      ))}
      <AddMatching run={run} view={view} />
    </div>
  );
}
