/** Contexts of one expert under each other: aligned on the token they are kept for, as snippets, or in full. */

import { memo, useMemo, useState } from "react";
import { Link } from "react-router";

import type { Context } from "@/api/types";
import { sequentialClass } from "@/lib/colour-scale";
import { formatFixed } from "@/lib/format";
import { kwicWindow, type Piece, pieces, snippet } from "@/lib/kwic";
import { splitLead } from "@/lib/token-text";

import { Button } from "../button";
import { TokenGroup } from "./token-group";
import { drawnText, type Shade, TokenText } from "./token-text";
import { TokenTip } from "./token-tip";

export const CONCORDANCE_MODES = ["aligned", "snippet", "full"] as const;
export type ConcordanceMode = (typeof CONCORDANCE_MODES)[number];

export const SNIPPET_TOKENS = 16;
/** Characters drawn on either side; more than fits on any screen is cut away. */
export const ALIGNED_BEFORE = 90;
export const ALIGNED_AFTER = 150;

export interface ConcordanceProps {
  readonly contexts: readonly Context[];
  /** End of the colour scale: the expert's largest coefficient, the same for all its contexts. */
  readonly largest: number;
  readonly mode: ConcordanceMode;
  readonly showBreaks?: boolean;
  /** Coefficient under the pointer or in focus, null once left. Keep it stable between renders. */
  readonly onHover?: (coefficient: number | null) => void;
  /** Locked token: where its context stands in its interval, and its position. */
  readonly locked?: ContextToken | null;
  readonly onLock?: (token: ContextToken) => void;
  /** Where a context goes as a prompt; given, each row can be opened. */
  readonly promptLinks?: (context: Context) => PromptLinks;
}

export interface PromptLinks {
  readonly routing: string;
  readonly steering: string;
}

export interface ContextToken {
  readonly interval: number;
  readonly rank: number;
  readonly position: number;
}

interface RowProps extends Omit<ConcordanceProps, "contexts" | "locked"> {
  readonly context: Context;
  readonly lockedPosition: number | null;
}

interface DrawProps {
  readonly context: Context;
  readonly shade: Shade;
  readonly lockedPosition: number | null;
  readonly showBreaks: boolean;
}

function AlignedText({ context, shade, lockedPosition, showBreaks }: DrawProps) {
  const window = useMemo(() => kwicWindow(context, ALIGNED_BEFORE, ALIGNED_AFTER), [context]);
  if (window === null) return null;
  const { lead, body } = splitLead(drawnText(window.peak.text, "line", showBreaks));
  const look = { shade, locked: lockedPosition, showBreaks, peak: context.position };
  return (
    <>
      <span className="l">
        <span>
          <TokenText pieces={window.left} {...look} />
          {lead}
        </span>
      </span>
      <span className="r">
        <TokenText pieces={[{ ...window.peak, text: body }]} {...look} />
        <TokenText pieces={window.right} {...look} />
      </span>
    </>
  );
}

function WrappedText({ context, shade, lockedPosition, showBreaks, whole }: DrawProps & { readonly whole: boolean }) {
  const shown = whole ? pieces(context) : snippet(context, SNIPPET_TOKENS);
  const first = shown[0]?.index ?? 0;
  const last = shown.at(-1)?.index ?? 0;
  return (
    <span className="w">
      {first > 0 && <span className="dim">… </span>}
      <TokenText
        pieces={shown}
        shade={shade}
        peak={context.position}
        locked={lockedPosition}
        layout={whole ? "block" : "line"}
        showBreaks={showBreaks}
      />
      {last < context.tokens.length - 1 && <span className="dim"> …</span>}
    </span>
  );
}

function RowText({ mode, ...draw }: DrawProps & { readonly mode: ConcordanceMode }) {
  return mode === "aligned" ? <AlignedText {...draw} /> : <WrappedText {...draw} whole={mode === "full"} />;
}

function useRow({ context, largest, onHover, onLock }: RowProps) {
  return useMemo(() => {
    const shade: Shade = (piece) => sequentialClass(piece.value ?? 0, largest);
    const place = { interval: context.interval, rank: context.rank };
    return {
      all: pieces(context),
      shade,
      tip: ({ text, id, value, rank }: Piece) => (
        <TokenTip
          text={text}
          id={id}
          coefficient={value}
          largest={largest}
          {...(rank !== undefined && { rank: [rank] })}
        />
      ),
      hover: onHover === undefined ? undefined : (piece: Piece | null) => onHover(piece?.value ?? null),
      lock: onLock === undefined ? undefined : (piece: Piece) => onLock({ ...place, position: piece.index }),
    };
  }, [context, largest, onHover, onLock]);
}

function Under({ context, links }: { readonly context: Context; readonly links: PromptLinks }) {
  return (
    <span className="under">
      <Link to={links.routing}>Use in Routing</Link>
      <Link to={links.steering}>Use in Steering</Link>
      <span className="dim">
        sequence {context.sequence}, token {context.position} of {context.tokens.length}
      </span>
    </span>
  );
}

const Row = memo(function Row(props: RowProps) {
  const { context, mode, lockedPosition, showBreaks = false, promptLinks } = props;
  const [open, setOpen] = useState(false);
  const { all, shade, tip, hover, lock } = useRow(props);
  const shown = open ? "full" : mode;
  return (
    <li className={shown === "aligned" ? "" : "wrapped"}>
      <span className="v">{formatFixed(context.coefficient)}</span>
      <TokenGroup
        className="line"
        label={`Context ${context.rank + 1}`}
        pieces={all}
        tip={tip}
        onHover={hover}
        onLock={lock}
      >
        <RowText mode={shown} context={context} shade={shade} lockedPosition={lockedPosition} showBreaks={showBreaks} />
      </TokenGroup>
      <span className="more">
        {promptLinks !== undefined && mode !== "full" && (
          <Button
            variant="ghost"
            className="bare"
            icon={open ? "chevronUp" : "chevronDown"}
            aria-label={open ? "Fold" : "Show the whole context"}
            aria-expanded={open}
            onClick={() => setOpen(!open)}
          />
        )}
      </span>
      {promptLinks !== undefined && shown === "full" && <Under context={context} links={promptLinks(context)} />}
    </li>
  );
});

export function Concordance({ contexts, locked = null, ...rest }: ConcordanceProps) {
  return (
    <ol className="kwic">
      {contexts.map((context) => {
        const here = locked?.interval === context.interval && locked.rank === context.rank;
        return (
          <Row
            key={`${context.interval}-${context.rank}`}
            context={context}
            lockedPosition={here ? locked.position : null}
            {...rest}
          />
        );
      })}
    </ol>
  );
}
