import type { Context } from "@/api/types";
import { excerpt } from "@/lib/text/excerpt";

/** The part of an example that matches a search, with the match marked. */
export function MatchedText({ context, query }: { readonly context: Context; readonly query: string }) {
  const { before, match, after } = excerpt(context.tokens.join(""), query);
  return (
    <span className="hit-context mono">
      {before}
      <mark>{match}</mark>
      {after}
    </span>
  );
}
