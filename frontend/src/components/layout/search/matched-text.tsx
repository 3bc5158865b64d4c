import type { Example } from "@/api/types";
import { excerpt } from "@/lib/text/excerpt";
import { SPECIAL_TOKEN } from "@/lib/text/prompts";

/** The part of an example that matches a search, with the match marked. */
export function MatchedText({ example, query }: { readonly example: Example; readonly query: string }) {
  const text = example.tokens.map((token) => (SPECIAL_TOKEN.test(token) ? " " : token)).join("");
  const { before, match, after } = excerpt(text, query);
  return (
    <span className="hit-example mono">
      {before}
      <mark>{match}</mark>
      {after}
    </span>
  );
}
