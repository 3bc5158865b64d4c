/** A search hit as a row of a list, with the part of its example that matches. */

import { ListBoxItem } from "react-aria-components";

import type { Example, SearchHit } from "@/api/types";
import { ExpertLabel, namingLabel } from "@/components/experts/expert-link";
import { TokenChip } from "@/components/tokens/token-chip";
import { SPECIAL_TOKEN } from "@/lib/text/kwic";

import { excerpt } from "./search-results";

interface MatchedTextProps {
  readonly example: Example;
  readonly query: string;
  /** Characters before the match. */
  readonly room?: number;
}

/** The part of an example that matches a search, with the match marked. */
export function MatchedText({ example, query, room }: MatchedTextProps) {
  const text = example.tokens.map((token) => (SPECIAL_TOKEN.test(token) ? " " : token)).join("");
  const { before, match, after } = excerpt(text, query, room);
  return (
    <span className="hit-example fades ink2 mono">
      {before}
      <mark>{match}</mark>
      {after}
    </span>
  );
}

/** The label that matches, a weak one may not be shown, after its related word if it does not contain the text. */
export const matchedLabel = ({ label, automatic, word }: SearchHit) =>
  (word === null ? "" : `“${word}” in the `) +
  (label !== null ? "user label" : namingLabel(automatic) === null ? "weak automatic label" : "automatic label");

/** Why an expert was found. */
export function MatchReason({ hit }: { readonly hit: SearchHit }) {
  if (hit.matched === "id") return "this number";
  const peak = hit.token ?? hit.example?.tokens[hit.example.position];
  if (peak === undefined) return matchedLabel(hit);
  return (
    <>
      {hit.token === null && "example, "}fires on <TokenChip text={peak} />
    </>
  );
}

interface HitRowProps {
  /** The list keys its rows by it; by their position, a row could not become that of another expert. */
  readonly id: string;
  readonly hit: SearchHit;
  readonly query: string;
}

export const HitRow = ({ id, hit, query }: HitRowProps) => (
  <ListBoxItem id={id} textValue={hit.label ?? `Expert ${hit.expert}`} className="hit">
    <span className="mono num ink2">{hit.expert}</span>
    <span className="lab">
      <ExpertLabel label={hit.label} automatic={hit.automatic} topTokens={hit.top_tokens} />
    </span>
    <span className="dim">
      <MatchReason hit={hit} />
    </span>
    {hit.example !== null && <MatchedText example={hit.example} query={query} />}
  </ListBoxItem>
);
