/** A search hit as a row of a list, with the part of its example that matches. */

import { ListBoxItem } from "react-aria-components";

import type { Example, SearchHit } from "@/api/types";
import { ExpertLabel, namingLabel } from "@/components/experts/expert-link";
import { TokenChip } from "@/components/tokens/token-chip";
import { SPECIAL_TOKEN } from "@/lib/text/kwic";

import { excerpt, type HitGroup } from "./search-results";

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

/** The label that matches; one that names no expert is not shown beside it. */
export const matchedLabel = ({ label, automatic }: SearchHit) =>
  label !== null ? "your label" : namingLabel(automatic) === null ? "weak label, not shown" : "label";

function MatchReason({ hit }: { readonly hit: SearchHit }) {
  if (hit.matched === "id") return <kbd aria-hidden="true">Enter</kbd>;
  const peak = hit.token ?? hit.example?.tokens[hit.example.position];
  if (hit.matching_examples > 0) return `${hit.matching_examples} of ${hit.top_examples} top examples,`;
  if (peak === undefined) return `${matchedLabel(hit)},`;
  return (
    <>
      {hit.token === null ? "example, " : "top token, "}fires on <TokenChip text={peak} />
    </>
  );
}

interface HitRowProps extends Partial<HitGroup> {
  /** The list keys its rows by it; by their position, a row could not become that of another expert. */
  readonly id: string;
  readonly hit: SearchHit;
  readonly query: string;
}

/** `same`: the others with its label, in a list of all layers. */
export function HitRow({ id, hit, same, query }: HitRowProps) {
  return (
    <ListBoxItem id={id} textValue={hit.label ?? `Expert ${hit.expert}`} className="hit">
      <span className="mono num ink2">{hit.expert}</span>
      <span className="lab">
        {hit.matched === "id" && `Expert ${hit.expert}: `}
        <ExpertLabel label={hit.label} automatic={hit.automatic} />
      </span>
      <span className="dim">
        <MatchReason hit={hit} />
        {same !== undefined && ` layer ${hit.layer}`}
      </span>
      {hit.example !== null && <MatchedText example={hit.example} query={query} />}
      {same !== undefined && same.length > 0 && (
        <span className="hit-example dim cut">same label: {same.map(nameInLayer).join(", ")}</span>
      )}
    </ListBoxItem>
  );
}

/** `8900 in layer 10` */
export const nameInLayer = ({ expert, layer }: SearchHit) => `${expert} in layer ${layer}`;
