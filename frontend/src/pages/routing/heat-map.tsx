/** Tokens by experts. A real table; only the columns in view are drawn where a text is long. */

import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

import { useTips } from "@/components/tokens/tip-layer";

import { columnOffsets, type ColumnWindow, columnWidth, windowOf } from "./columns";
import { heatEvents, type Place } from "./heat-events";
import { HeatHead } from "./heat-head";
import { HeatRowView } from "./heat-row";
import { CellTip, ColumnTip } from "./heat-tips";
import type { Column, HeatRow, Predicted, Ranking } from "./heat-rows";
import type { RoutingLock } from "./routing-params";

interface HeatMapProps {
  readonly columns: readonly Column[];
  readonly rows: readonly HeatRow[];
  /** Further experts of the locked token, ranked too low to be among the rows. */
  readonly extra: readonly HeatRow[];
  readonly end: number;
  readonly ranking: Ranking;
  readonly lock: RoutingLock | null;
  readonly predicted: Predicted;
  /** Keep both stable between renders. */
  readonly onPreview: (position: number) => void;
  readonly onLock: (place: Place) => void;
}

/** Width of the last column, which stays in view as the first does. */
const PINNED_RIGHT = 58;
const same = (a: ColumnWindow, b: ColumnWindow) => a.from === b.from && a.to === b.to;

/** Which columns to draw: follows scrolling and size of the box. */
function useColumnWindow(offsets: readonly number[]) {
  const box = useRef<HTMLDivElement>(null);
  const [window, setWindow] = useState<ColumnWindow>(() => windowOf(offsets, 0, 1));
  const update = useCallback(() => {
    if (box.current === null) return;
    const { scrollLeft, clientWidth } = box.current;
    const next = windowOf(offsets, scrollLeft, scrollLeft + clientWidth);
    setWindow((old) => (same(old, next) ? old : next));
  }, [offsets]);
  useLayoutEffect(() => {
    update();
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(update);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [update]);
  const count = offsets.length - 1;
  return { box, window: window.to > count ? windowOf(offsets, 0, 1) : window, update };
}

/** Brings a locked column into view when it is not: after opening a shared link, or locking by key. */
function useLockInView(box: React.RefObject<HTMLDivElement | null>, offsets: readonly number[], column: number) {
  useEffect(() => {
    const [from, to] = [offsets[column], offsets[column + 1]];
    const head = box.current?.querySelector<HTMLElement>(".c0");
    if (box.current === null || head == null || from === undefined || to === undefined) return;
    const { scrollLeft, clientWidth } = box.current;
    const room = clientWidth - head.offsetWidth - PINNED_RIGHT;
    if (from < scrollLeft || to > scrollLeft + room) box.current.scrollTo({ left: Math.max(0, from - room / 2) });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- only a new lock moves the view, never scrolling itself
  }, [column]);
}

/** Brings the row of a locked cell into view: it may be far down among the experts of its token. */
function useRowInView(box: React.RefObject<HTMLDivElement | null>, expert: number | null) {
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
    const tipAt = ({ position, expert }: Place) => {
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
      onEnter: (place, element) => {
        tips.show(element, tipAt(place));
        onPreview(place.position);
      },
      onLeave: tips.hide,
      onLock,
    });
  }, [columns, extra, onLock, onPreview, predicted, rows, tips]);
}

export const HeatMap = memo(function HeatMap(props: HeatMapProps) {
  const { columns, rows, extra, end, ranking, lock, predicted } = props;
  const widths = useMemo(() => columns.map(({ token }) => columnWidth(token.text)), [columns]);
  const offsets = useMemo(() => columnOffsets(widths), [widths]);
  const { box, window, update } = useColumnWindow(offsets);
  const locked = lock?.position ?? null;
  useLockInView(box, offsets, locked === null ? -1 : columns.findIndex(({ position }) => position === locked));
  useRowInView(box, lock?.expert ?? null);
  const events = useEvents(props);
  const draw = (row: HeatRow) => (
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
    <div ref={box} className="heat-box" onScroll={update}>
      <table className="heat" aria-label="Coefficients, tokens by experts" {...events}>
        <colgroup>
          <col className="heads" />
          {widths.map((width, i) => (
            <col key={i} style={{ width }} />
          ))}
          <col className="sums" />
        </colgroup>
        <HeatHead columns={columns} window={window} ranking={ranking} locked={locked} predicted={predicted} />
        <tbody>{rows.map(draw)}</tbody>
        {extra.length > 0 && (
          <tbody className="extra" aria-label="Other experts of the locked token">
            {extra.map(draw)}
          </tbody>
        )}
      </table>
    </div>
  );
});
