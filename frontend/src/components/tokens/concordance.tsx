/** Examples of an expert, one per row: aligned on the peak token, as snippets, or in full. */

import { memo, useMemo, useState } from "react";
import { Link } from "react-router";

import type { Example } from "@/api/types";
import { UnfoldButton } from "@/components/ui/button";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { formatFixed } from "@/lib/text/format";
import { kwicWindow, pieces, snippet } from "@/lib/text/kwic";
import { splitLeadingSpace } from "@/lib/text/token-text";

import { displayText, type Shade, TokenGroup, TokenText, withDrawnSpace } from "./token-text";
import { TokenTip } from "./token-chip";

export const CONCORDANCE_MODES = ["aligned", "snippet", "full"] as const;
export type ConcordanceMode = (typeof CONCORDANCE_MODES)[number];

export const SNIPPET_TOKENS = 16;
/** Characters on either side; wider than any screen, so that rows are cut off by the edge. */
export const ALIGNED_BEFORE = 90;
export const ALIGNED_AFTER = 150;

export interface ConcordanceProps {
  readonly examples: readonly Example[];
  /** End of the colour scale: the expert's largest activation. */
  readonly largest: number;
  readonly mode: ConcordanceMode;
  readonly showBreaks?: boolean;
  /** Receives the activation under the pointer or focus, null when it leaves. Must be stable between renders. */
  readonly onHover?: (activation: number | null) => void;
  /** The locked token, if any. */
  readonly locked?: ExampleToken | null;
  readonly onLock?: (token: ExampleToken) => void;
  /** Links that use an example as a prompt; with them, rows can be expanded. */
  readonly promptLinks?: (example: Example) => PromptLinks;
}

export interface PromptLinks {
  readonly routing: string;
  readonly steering: string;
}

export interface ExampleToken {
  readonly bin: number;
  readonly rank: number;
  readonly position: number;
}

interface RowProps extends Omit<ConcordanceProps, "examples" | "locked"> {
  readonly example: Example;
  readonly lockedPosition: number | null;
}

interface TextProps extends Pick<RowProps, "example" | "lockedPosition"> {
  readonly shade: Shade;
  readonly showBreaks: boolean;
}

function AlignedText({ example, shade, lockedPosition, showBreaks }: TextProps) {
  const window = useMemo(() => kwicWindow(example, ALIGNED_BEFORE, ALIGNED_AFTER), [example]);
  if (window === null) return null;
  const { leadingSpace, body } = splitLeadingSpace(withDrawnSpace(displayText(window.peak.text, "line", showBreaks)));
  const textProps = { shade, locked: lockedPosition, showBreaks, peak: example.position };
  return (
    <>
      <span className="l">
        <span>
          <TokenText pieces={window.left} {...textProps} />
          {leadingSpace}
        </span>
      </span>
      <span className="r">
        <TokenText pieces={[{ ...window.peak, text: body }, ...window.right]} {...textProps} />
      </span>
    </>
  );
}

function WrappedText({ example, lockedPosition, whole, ...text }: TextProps & { readonly whole: boolean }) {
  const visible = whole ? pieces(example) : snippet(example, SNIPPET_TOKENS);
  return (
    <span className="w">
      {(visible[0]?.index ?? 0) > 0 && <span className="dim">… </span>}
      <TokenText
        {...text}
        pieces={visible}
        peak={example.position}
        locked={lockedPosition}
        layout={whole ? "block" : "line"}
      />
      {(visible.at(-1)?.index ?? 0) < example.tokens.length - 1 && <span className="dim"> …</span>}
    </span>
  );
}

function RowLinks({ example, links }: { readonly example: Example; readonly links: PromptLinks }) {
  return (
    <span className="under">
      <Link className="link" to={links.routing}>
        Use in Routing
      </Link>
      <Link className="link" to={links.steering}>
        Use in Steering
      </Link>
      <span className="dim">
        sequence {example.sequence}, token {example.position} of {example.tokens.length}
      </span>
    </span>
  );
}

const Row = memo(function Row(props: RowProps) {
  const { example, mode, largest, lockedPosition, showBreaks = true, promptLinks, onHover, onLock } = props;
  const [open, setOpen] = useState(false);
  const allPieces = useMemo(() => pieces(example), [example]);
  const shown = open ? "full" : mode;
  const shade: Shade = (piece) => sequentialClass(piece.value ?? 0, largest);
  const text = { example, shade, lockedPosition, showBreaks };
  return (
    <li className={shown === "aligned" ? "" : "wrapped"}>
      <span className="v">{formatFixed(example.activation)}</span>
      <TokenGroup
        className="line"
        label={`Example ${example.rank + 1}`}
        pieces={allPieces}
        tip={({ text: token, id, value, rank }) => (
          <TokenTip text={token} id={id} activation={value} largest={largest} {...(rank && { rank: [rank] })} />
        )}
        onHover={(piece) => onHover?.(piece?.value ?? null)}
        onLock={({ index }) => onLock?.({ bin: example.bin, rank: example.rank, position: index })}
      >
        {shown === "aligned" ? <AlignedText {...text} /> : <WrappedText {...text} whole={shown === "full"} />}
      </TokenGroup>
      <span className="more">
        {promptLinks !== undefined && mode !== "full" && (
          <UnfoldButton
            className="bare"
            aria-label={open ? "Collapse" : "Show the full example"}
            isOpen={open}
            onOpen={setOpen}
          />
        )}
      </span>
      {promptLinks !== undefined && shown === "full" && <RowLinks example={example} links={promptLinks(example)} />}
    </li>
  );
});

export function Concordance({ examples, locked = null, ...rest }: ConcordanceProps) {
  return (
    <ol className="kwic">
      {examples.map((example) => {
        const isHere = locked?.bin === example.bin && locked.rank === example.rank;
        return (
          <Row
            key={`${example.bin}-${example.rank}`}
            example={example}
            lockedPosition={isHere ? locked.position : null}
            {...rest}
          />
        );
      })}
    </ol>
  );
}
