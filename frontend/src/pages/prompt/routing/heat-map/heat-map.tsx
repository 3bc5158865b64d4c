/** Heat map of activations, tokens by experts. A real table; for long texts only the columns in view are rendered. */

import {
  type CSSProperties,
  memo,
  type ReactNode,
  type RefObject,
  useCallback,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";

import { ExpertLabel, ExpertLink, shownAutomatic } from "@/components/experts/expert-link";
import { Term } from "@/components/terms/term";
import { hideTip, showTip } from "@/components/tokens/tip-layer";
import { TipFacts, TokenChip, TokenTip } from "@/components/tokens/token-chip";
import { tokenEvents } from "@/components/tokens/token-text";
import { ScrollBox } from "@/components/ui/pane-head";
import { useIsNarrow, useWidth } from "@/hooks/use-size";
import { sequentialStep } from "@/lib/scales/colour-scale";
import { formatCount, formatFixed } from "@/lib/text/format";
import { nextCell } from "@/pages/prompt/edges";
import type { RoutingLock } from "@/pages/prompt/routing/routing-params";

import {
  cellDigits,
  type Column,
  columnOffsets,
  columnText,
  columnWidth,
  type ColumnWindow,
  formatKl,
  type HeatRow,
  isBreak,
  type Predicted,
  type Ranking,
  RANKINGS,
  scoreAt,
  visibleColumns,
} from "./heat-rows";

interface HeatHandlers {
  readonly onEnter: (place: RoutingLock, element: HTMLElement) => void;
  readonly onLeave: () => void;
  readonly onLock: (place: RoutingLock, element: HTMLElement) => void;
}

/** Of a column's header, the expert is null. */
function placeOf({ dataset: { position, expert } }: HTMLElement): RoutingLock {
  return { position: Number(position), expert: expert === undefined ? null : Number(expert) };
}

export const heatEvents = ({ onEnter, onLeave, onLock }: HeatHandlers) =>
  tokenEvents({
    selector: "[data-position]",
    onEnter: (cell) => (cell === null ? onLeave() : onEnter(placeOf(cell), cell)),
    onPress: (cell) => onLock(placeOf(cell), cell),
    next: nextCell,
  });

export function CellTip({ row, column }: { readonly row: HeatRow; readonly column: Column }) {
  const cell = row.cells.get(column.position);
  return (
    <>
      <div className="hd">
        <span className="mono">{row.expert}</span>
        {(row.info.label !== null || shownAutomatic(row.info.automatic) !== null) && (
          <b>
            <ExpertLabel label={row.info.label} automatic={row.info.automatic} />
          </b>
        )}
      </div>
      <TokenTip
        text={column.token.text}
        id={column.token.id}
        activation={cell?.activation ?? null}
        largest={row.info.max_activation}
        {...(cell !== undefined && { rank: [cell.rank, cell.activeExperts] as const, share: cell.share })}
      />
    </>
  );
}

export function ColumnTip({ column, predicted }: { readonly column: Column; readonly predicted: Predicted }) {
  const { token, position } = column;
  const next = predicted?.[position];
  const nats = (value: number | undefined) => (value === undefined ? "…" : `${formatFixed(value, 4)} nats`);
  return (
    <>
      <div className="hd">
        <TokenChip text={token.text} />
        <span className="dim">token id {formatCount(token.id)}</span>
      </div>
      <TipFacts
        facts={[
          ["Position", position],
          ["Active experts", token.experts.length],
          ["KL from original", nats(next?.kl)],
          ["KL with the MLP zero-ablated", nats(next?.zeroed_kl)],
        ]}
      />
    </>
  );
}

export function RowHead({ expert, info }: { readonly expert: number; readonly info: HeatRow["info"] | undefined }) {
  const { label = null, automatic, top_tokens: topTokens = [] } = info ?? {};
  return (
    <th scope="row">
      <ExpertLink expert={expert} label={label} automatic={automatic} topTokens={topTokens} />
    </th>
  );
}

interface CellsProps {
  readonly columns: readonly Column[];
  /** The rendered columns; one cell is in place of those on either side. */
  readonly window: ColumnWindow;
  readonly children: (column: Column) => ReactNode;
}

function Cells({ columns, window: { from, to }, children }: CellsProps) {
  return (
    <>
      {from > 0 && <td colSpan={from} />}
      {columns.slice(from, to).map(children)}
      {to < columns.length && <td colSpan={columns.length - to} />}
    </>
  );
}

interface HeatRowProps extends Pick<HeatMapProps, "columns" | "end" | "ranking"> {
  readonly row: HeatRow;
  readonly window: ColumnWindow;
  readonly locked: number | null;
  readonly isLocked: boolean;
  /** Whether it is the first row that is inactive on the locked token, or that has a weak label. */
  readonly isBreak: boolean;
}

const HeatRowView = memo(function HeatRowView(props: HeatRowProps) {
  const { row, columns, window, end, ranking, locked, isLocked, isBreak } = props;
  const digits = cellDigits(end);
  return (
    <tr className={isLocked ? "rowlk" : isBreak ? "next-group" : undefined}>
      <RowHead {...row} />
      <Cells columns={columns} window={window}>
        {({ position }) => {
          const cell = row.cells.get(position);
          return (
            <td key={position} className={position === locked ? "lk" : undefined}>
              {cell !== undefined && (
                <button
                  type="button"
                  tabIndex={-1}
                  data-position={position}
                  data-expert={row.expert}
                  className={`s${Math.max(1, sequentialStep(cell.activation, end))}`}
                >
                  {cell.activation.toFixed(digits)}
                </button>
              )}
            </td>
          );
        }}
      </Cells>
      <td className="sum num">
        {ranking === "specific" ? formatFixed(scoreAt(row, locked), 1) : RANKINGS[ranking].text(row, digits)}
      </td>
    </tr>
  );
});

const KL_BAR = 22;

interface HeatHeadProps extends Pick<HeatMapProps, "columns" | "ranking" | "predicted"> {
  readonly window: ColumnWindow;
  readonly locked: number | null;
}

/** Header of the heat map: one column per token, and the KL divergence that the layer causes after it. */
function HeatHead({ columns, window, ranking, locked, predicted }: HeatHeadProps) {
  const tabStop = locked ?? columns[window.from]?.position;
  const lockedClass = (position: number) => (position === locked ? "lk" : undefined);
  const largestKl = columns.reduce((largest, { position }) => Math.max(largest, predicted?.[position]?.kl ?? 0), 1e-9);
  return (
    <thead>
      <tr className="tokens">
        <th className="c0" scope="col">
          Token
        </th>
        <Cells columns={columns} window={window}>
          {({ position, token }) => (
            <th key={position} scope="col" className={lockedClass(position)}>
              <button
                type="button"
                tabIndex={position === tabStop ? 0 : -1}
                data-position={position}
                aria-pressed={position === locked}
                className="block cut tokb"
              >
                {columnText(token.text)}
              </button>
            </th>
          )}
        </Cells>
        <th className="num sum" scope="col" aria-sort={ranking === "rarest" ? "ascending" : "descending"}>
          {RANKINGS[ranking].header} {ranking === "rarest" ? "↑" : "↓"}
        </th>
      </tr>
      <tr className="klr" aria-busy={predicted === undefined}>
        <th className="c0" scope="row">
          <Term id="kl">KL from original</Term> <span className="unit">nats</span>
        </th>
        <Cells columns={columns} window={window}>
          {({ position }) => {
            const kl = predicted?.[position]?.kl;
            return (
              <td key={position} className={lockedClass(position)}>
                {kl !== undefined && (
                  <>
                    <span className="klb" style={{ height: Math.max(1, Math.round((KL_BAR * kl) / largestKl)) }} />
                    <small>{formatKl(kl)}</small>
                  </>
                )}
              </td>
            );
          }}
        </Cells>
        <td className="sum" />
      </tr>
    </thead>
  );
}

/**
 * Width in pixels of the labels: what the tokens leave, or the usual width if they leave too little and scroll. What few
 * tokens leave beyond the largest width makes their columns wider, up to `WIDE`.
 */
const LABELS = { min: 170, usual: 214, max: 420, narrow: 142 } as const;
const WIDE = 96;
const SUMS = 66;

interface HeatMapProps {
  readonly columns: readonly Column[];
  readonly rows: readonly HeatRow[];
  readonly end: number;
  readonly ranking: Ranking;
  readonly isMixed: boolean;
  readonly lock: RoutingLock | null;
  readonly predicted: Predicted;
  /** Must be stable between renders. */
  readonly onPreview: (position: number) => void;
  readonly onLock: (cell: RoutingLock) => void;
}

/** Column width in the narrow layout, where the tokens read upwards. */
const NARROW_COLUMN = 31;
/** Least height of the token row in the narrow layout, for touch. */
const MIN_TOKEN_HEIGHT = 45;

type Box = RefObject<HTMLDivElement | null>;

/** Pixels of scrolling after which other columns may be rendered. */
const SCROLL_STEP = 200;

/** Range of columns to render, and a handler of scrolling. */
function useColumnWindow(box: Box, offsets: readonly number[], width: number) {
  const [left, setLeft] = useState(0);
  const { from, to } = visibleColumns(offsets, left, left + width);
  const window = useMemo(() => ({ from, to }), [from, to]);
  const onScroll = useCallback(
    () => setLeft(SCROLL_STEP * Math.floor((box.current?.scrollLeft ?? 0) / SCROLL_STEP)),
    [box],
  );
  return { window, onScroll };
}

/** Scrolls a locked column and the first rows, those of its token, into view. */
function useScrollToLock(box: Box, offsets: readonly number[], column: number) {
  useEffect(() => {
    const [from, to] = [offsets[column], offsets[column + 1]];
    if (box.current === null || from === undefined || to === undefined) return;
    const { scrollLeft, clientWidth } = box.current;
    const visible = clientWidth - (box.current.querySelector<HTMLElement>(".c0")?.offsetWidth ?? 0);
    const isHidden = from < scrollLeft || to > scrollLeft + visible;
    box.current.scrollTo({ top: 0, ...(isHidden && { left: Math.max(0, from - visible / 2) }) });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- only a new lock scrolls, not scrolling itself
  }, [column]);
}

function useEvents({ columns, rows, predicted, onPreview, onLock }: HeatMapProps) {
  return useMemo(() => {
    const tipAt = ({ position, expert }: RoutingLock) => {
      const column = columns.find((candidate) => candidate.position === position);
      const row = rows.find((candidate) => candidate.expert === expert);
      if (column === undefined) return null;
      return row === undefined ? (
        <ColumnTip column={column} predicted={predicted} />
      ) : (
        <CellTip row={row} column={column} />
      );
    };
    return heatEvents({
      onEnter: (cell, element) => {
        showTip(element, tipAt(cell));
        onPreview(cell.position);
      },
      onLeave: hideTip,
      onLock,
    });
  }, [columns, onLock, onPreview, predicted, rows]);
}

export const HeatMap = memo(function HeatMap(props: HeatMapProps) {
  const { columns, rows, end, ranking, isMixed, lock, predicted } = props;
  const isNarrow = useIsNarrow();
  const lengths = useMemo(() => columns.map(({ token }) => columnWidth(token.text)), [columns]);
  const box = useRef<HTMLDivElement>(null);
  const available = useWidth(box);
  const widths = useMemo(() => {
    if (isNarrow) return lengths.map(() => NARROW_COLUMN);
    const spare = available - SUMS - LABELS.max - lengths.reduce((sum, length) => sum + length, 0);
    const more = Math.floor(Math.max(0, spare) / Math.max(1, lengths.length));
    return lengths.map((length) => Math.max(length, Math.min(WIDE, length + more)));
  }, [isNarrow, lengths, available]);
  const offsets = useMemo(() => columnOffsets(widths), [widths]);
  const { window, onScroll } = useColumnWindow(box, offsets, available);
  const free = available - (offsets.at(-1) ?? 0) - (isNarrow ? 0 : SUMS);
  const labels = isNarrow ? Math.max(LABELS.narrow, free) : free < LABELS.min ? LABELS.usual : free;
  const locked = lock?.position ?? null;
  const numActive = locked === null ? -1 : rows.findIndex(({ cells }) => !cells.has(locked));
  useScrollToLock(box, offsets, locked === null ? -1 : columns.findIndex(({ position }) => position === locked));
  const events = useEvents(props);
  return (
    <ScrollBox className="heat-box" label="Heat map" ref={box} onScroll={onScroll}>
      <table
        className="heat"
        aria-label="Activations, tokens by experts"
        style={{ "--longest-token": `${Math.max(MIN_TOKEN_HEIGHT, ...lengths)}px` } as CSSProperties}
        {...events}
      >
        <colgroup>
          <col style={{ width: labels }} />
          {widths.map((width, i) => (
            <col key={i} style={{ width }} />
          ))}
          <col className="sums" style={{ width: SUMS }} />
        </colgroup>
        <HeatHead columns={columns} window={window} ranking={ranking} locked={locked} predicted={predicted} />
        <tbody>
          {rows.map((row, i) => (
            <HeatRowView
              key={row.expert}
              {...{ row, columns, window, end, ranking, locked }}
              isLocked={row.expert === lock?.expert}
              isBreak={(i === numActive && i > 0) || isBreak(row, rows[i - 1], isMixed)}
            />
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
});
