/** Heat map of activations, tokens by experts. A real table; for long texts only the columns in view are rendered. */

import { type CSSProperties, memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

import { useTips } from "@/components/tokens/tip-layer";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import type { RoutingLock } from "@/pages/prompt/routing/routing-params";

import { columnOffsets, type ColumnWindow, columnWidth, visibleColumns } from "./columns";
import { heatEvents, type CellPosition } from "./heat-events";
import { HeatHead } from "./heat-head";
import { HeatRowView } from "./heat-row";
import type { Column, HeatRow, Predicted, Ranking } from "./heat-rows";
import { CellTip, ColumnTip } from "./heat-tips";

/** Width in pixels of the labels: what the tokens leave, or the usual width if they leave too little and scroll. */
const LABEL_WIDTH = { min: 170, usual: 214, max: 400 } as const;

interface HeatMapProps {
  readonly columns: readonly Column[];
  readonly rows: readonly HeatRow[];
  /** Other experts of the locked token that are ranked below the last visible row. */
  readonly extra: readonly HeatRow[];
  readonly end: number;
  readonly ranking: Ranking;
  readonly lock: RoutingLock | null;
  readonly predicted: Predicted;
  /** Must be stable between renders. */
  readonly onPreview: (position: number) => void;
  readonly onLock: (cell: CellPosition) => void;
}

/** Column width in the narrow layout, where the tokens read upwards. */
const NARROW_COLUMN = 31;
/** Least height of the token row in the narrow layout, for touch. */
const MIN_TOKEN_HEIGHT = 45;
const isSameWindow = (a: ColumnWindow, b: ColumnWindow) => a.from === b.from && a.to === b.to;

const widthOf = (box: HTMLElement, selector: string) => box.querySelector<HTMLElement>(selector)?.offsetWidth ?? 0;
/** Width of the sticky last column. */
const pinnedRight = (box: HTMLElement) => widthOf(box, ".sum");

function countHiddenRight(box: HTMLElement, offsets: readonly number[]): number {
  const right = box.scrollLeft + box.clientWidth - widthOf(box, ".c0") - pinnedRight(box);
  return offsets.slice(1).filter((end) => end > right + 1).length;
}

/** Range of columns to render and number of columns beyond the right edge, updated on scrolling and resizing. */
function useColumnWindow(offsets: readonly number[]) {
  const box = useRef<HTMLDivElement>(null);
  const [window, setWindow] = useState<ColumnWindow>(() => visibleColumns(offsets, 0, 1));
  const [hiddenRight, setHiddenRight] = useState(0);
  const [labelWidth, setLabelWidth] = useState<number>(LABEL_WIDTH.usual);
  const update = useCallback(() => {
    if (box.current === null) return;
    const { scrollLeft, clientWidth } = box.current;
    const next = visibleColumns(offsets, scrollLeft, scrollLeft + clientWidth);
    setWindow((old) => (isSameWindow(old, next) ? old : next));
    setHiddenRight(countHiddenRight(box.current, offsets));
    const free = clientWidth - (offsets.at(-1) ?? 0) - pinnedRight(box.current);
    setLabelWidth(free < LABEL_WIDTH.min ? LABEL_WIDTH.usual : Math.min(LABEL_WIDTH.max, free));
  }, [offsets]);
  useLayoutEffect(() => {
    update();
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(update);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [update]);
  const count = offsets.length - 1;
  return { box, window: window.to > count ? visibleColumns(offsets, 0, 1) : window, hiddenRight, labelWidth, update };
}

/** Scrolls a locked column into view, e.g. after opening a shared link. */
function useScrollToLockedColumn(
  box: React.RefObject<HTMLDivElement | null>,
  offsets: readonly number[],
  column: number,
) {
  useEffect(() => {
    const [from, to] = [offsets[column], offsets[column + 1]];
    if (box.current === null || from === undefined || to === undefined) return;
    const { scrollLeft, clientWidth } = box.current;
    const visibleWidth = clientWidth - widthOf(box.current, ".c0") - pinnedRight(box.current);
    if (from < scrollLeft || to > scrollLeft + visibleWidth)
      box.current.scrollTo({ left: Math.max(0, from - visibleWidth / 2) });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- only a new lock scrolls, not scrolling itself
  }, [column]);
}

/** Scrolls the row of a locked cell into view. */
function useScrollToLockedRow(box: React.RefObject<HTMLDivElement | null>, expert: number | null) {
  useEffect(() => {
    const row = expert === null ? null : box.current?.querySelector<HTMLElement>("tr.rowlk");
    if (box.current === null || row == null) return;
    const { scrollTop, clientHeight } = box.current;
    const isBelow = row.offsetTop + row.offsetHeight > scrollTop + clientHeight;
    if (isBelow) box.current.scrollTo({ top: row.offsetTop - clientHeight / 2 });
  }, [box, expert]);
}

function useEvents({ columns, rows, extra, predicted, onPreview, onLock }: HeatMapProps) {
  const tips = useTips();
  return useMemo(() => {
    const tipAt = ({ position, expert }: CellPosition) => {
      const column = columns.find((candidate) => candidate.position === position);
      const row = [...rows, ...extra].find((candidate) => candidate.expert === expert);
      if (column === undefined) return null;
      return row === undefined ? (
        <ColumnTip column={column} predicted={predicted} />
      ) : (
        <CellTip row={row} column={column} />
      );
    };
    return heatEvents({
      onEnter: (cell, element) => {
        tips.show(element, tipAt(cell));
        onPreview(cell.position);
      },
      onLeave: tips.hide,
      onLock,
    });
  }, [columns, extra, onLock, onPreview, predicted, rows, tips]);
}

export const HeatMap = memo(function HeatMap(props: HeatMapProps) {
  const { columns, rows, extra, end, ranking, lock, predicted } = props;
  const isNarrow = useIsNarrow();
  const lengths = useMemo(() => columns.map(({ token }) => columnWidth(token.text)), [columns]);
  const widths = useMemo(() => (isNarrow ? lengths.map(() => NARROW_COLUMN) : lengths), [isNarrow, lengths]);
  const offsets = useMemo(() => columnOffsets(widths), [widths]);
  const { box, window, hiddenRight, labelWidth, update } = useColumnWindow(offsets);
  const locked = lock?.position ?? null;
  useScrollToLockedColumn(
    box,
    offsets,
    locked === null ? -1 : columns.findIndex(({ position }) => position === locked),
  );
  useScrollToLockedRow(box, lock?.expert ?? null);
  const events = useEvents(props);
  const renderRow = (row: HeatRow) => (
    <HeatRowView
      key={row.expert}
      row={row}
      columns={columns}
      window={window}
      end={end}
      ranking={ranking}
      locked={locked}
      isLocked={row.expert === lock?.expert}
    />
  );
  return (
    <div ref={box} className={hiddenRight > 0 ? "heat-box more-right" : "heat-box"} onScroll={update}>
      <table
        className="heat"
        aria-label="Activations, tokens by experts"
        style={{ "--longest-token": `${Math.max(MIN_TOKEN_HEIGHT, ...lengths)}px` } as CSSProperties}
        {...events}
      >
        <colgroup>
          <col className="heads" style={isNarrow ? undefined : { width: labelWidth }} />
          {widths.map((width, i) => (
            <col key={i} style={{ width }} />
          ))}
          <col className="sums" />
        </colgroup>
        <HeatHead columns={columns} window={window} ranking={ranking} locked={locked} predicted={predicted} />
        <tbody>{rows.map(renderRow)}</tbody>
        {extra.length > 0 && (
          <tbody className="extra" aria-label="Other experts of the locked token">
            {extra.map(renderRow)}
          </tbody>
        )}
      </table>
      <p className="heat-cue dim">
        {hiddenRight > 0 &&
          `${hiddenRight} more ${hiddenRight === 1 ? "token" : "tokens"} to the right: scroll sideways`}
      </p>
    </div>
  );
});
