/** Where to start a search: words that find experts of this run, steerable experts and saved lists. */

import { useInfiniteQuery, useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { expertsQuery, listsQuery, searchQuery } from "@/api/queries";
import { ExpertLink } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { Button } from "@/components/ui/button";
import { formatCount, formatFixed } from "@/lib/text/format";

/** What somebody may look for in any language model: meanings, a place, a programming language. */
const WORDS = ["days of the week", "family members", "China", "Python", "money", "numbers", "music", "percent"];

const ROWS = 8;

interface StartsProps {
  readonly run: string;
  readonly onText: (text: string) => void;
}

/** Each with the best expert that a label or token finds; descriptions are found by related words. */
function Words({ run, onText }: StartsProps) {
  const found = useQueries({ queries: WORDS.map((words) => searchQuery([run], words)) });
  return (
    <section>
      <h2>Words, and the expert that they find</h2>
      <ul className="expert-list">
        {WORDS.map((words, i) => {
          const best = found[i]?.data?.hits[0];
          return (
            <li key={words} className="row">
              <Button size="small" onClick={() => onText(words)}>
                {words}
              </Button>
              {best === undefined || best.matched === "example" ? (
                <span className="dim">by related words</span>
              ) : (
                <ExpertLink {...best} topTokens={best.top_tokens} />
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Steerable({ run }: Pick<StartsProps, "run">) {
  const links = usePageLinks();
  const filters = { sort: "steerability", order: "desc", among: "steerable" } as const;
  const { data } = useInfiniteQuery(expertsQuery(run, filters, ROWS));
  return (
    <section>
      <h2>Most steerable experts, nats</h2>
      <ul className="expert-list">
        {data?.pages[0]?.experts.map((row) => (
          <li key={row.expert} className="row">
            <ExpertLink {...row} topTokens={row.top_tokens} />
            <span className="num dim">{row.steerability !== null && formatFixed(row.steerability, 3)}</span>
          </li>
        ))}
      </ul>
      <Link className="link" to={links.page("experts", { sort: "steerability" })}>
        All by steerability
      </Link>
    </section>
  );
}

function SavedLists({ run }: Pick<StartsProps, "run">) {
  const links = usePageLinks();
  const { data } = useQuery(listsQuery(run));
  if (data === undefined || data.lists.length === 0) return null;
  return (
    <section>
      <h2>Saved lists</h2>
      <ul>
        {data.lists.slice(0, ROWS).map(({ id, name, experts }) => (
          <li key={id}>
            <Link className="link" to={links.list(id)}>
              {name}
            </Link>{" "}
            <span className="dim">{formatCount(experts)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Starts({ run, onText }: StartsProps) {
  return (
    <div className="search-starts">
      <Words run={run} onText={onText} />
      <Steerable run={run} />
      <SavedLists run={run} />
    </div>
  );
}
