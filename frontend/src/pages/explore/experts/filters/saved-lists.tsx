/** Lists and tags as saved filters of the table, and the experts that it shows as a list. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";

import { listsQuery, useCreateList } from "@/api/lists";
import { expertsQuery } from "@/api/queries";
import { AddToList } from "@/components/lists/add-to-list";
import { usePageLinks } from "@/components/runs/page-links";
import { Button, LinkButton } from "@/components/ui/button";
import { Failure } from "@/components/ui/states";
import { useBestExperts } from "@/hooks/use-best-experts";
import { formatCount } from "@/lib/text/format";
import { type ExpertsView, toFilters } from "@/pages/explore/experts/experts-params";

const EXAMPLE = "Experts to start with";
const EXAMPLE_EXPERTS = 5;

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

/** As long as there are no lists: one that can be created. */
function ExampleList({ run, onCreated }: { readonly run: string; readonly onCreated: (list: number) => void }) {
  const experts = useBestExperts(run).experts.slice(0, EXAMPLE_EXPERTS);
  const creation = useCreateList(run);
  // A callback of the mutation would be dropped: with the new list, this example is no longer on the page.
  const create = () =>
    creation.mutateAsync({ name: EXAMPLE, experts: experts.map(({ expert }) => expert) }).then(
      ({ id }) => onCreated(id),
      () => undefined, // shown below
    );
  return (
    <>
      <span className="dim wide-only">none yet; a list keeps the experts of a question, in order and with notes</span>
      <Button
        size="small"
        icon="plus"
        disabled={experts.length === 0 || creation.isPending}
        title="Strong experts that are active on few tokens and kinds of token"
        onClick={() => void create()}
      >
        Example: {EXAMPLE_EXPERTS} experts to start with
      </Button>
      <Failure error={creation.error} />
    </>
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
      {data?.lists.length === 0 && <ExampleList run={run} onCreated={(list) => setParams({ list }, "push")} />}
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
