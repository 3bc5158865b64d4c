/** Pointer, focus and keyboard handling for the whole heat map: hover previews, click locks, arrow keys move. */

import type { FocusEvent, KeyboardEvent, MouseEvent, PointerEvent } from "react";

export interface CellPosition {
  readonly position: number;
  /** null for the column header. */
  readonly expert: number | null;
}

interface HeatHandlers {
  readonly onEnter: (place: CellPosition, element: HTMLElement) => void;
  readonly onLeave: () => void;
  readonly onLock: (place: CellPosition, element: HTMLElement) => void;
}

function closestCell(target: EventTarget): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>("[data-position]") : null;
}

function readCellPosition(element: HTMLElement): CellPosition {
  const { position = "", expert } = element.dataset;
  return { position: Number(position), expert: expert === undefined ? null : Number(expert) };
}

function horizontalNeighbour(element: HTMLElement, step: 1 | -1): HTMLElement | undefined {
  const row = [...(element.closest("tr")?.querySelectorAll<HTMLElement>("[data-position]") ?? [])];
  return row[row.indexOf(element) + step];
}

/** The next cell above or below on the same token. Empty cells are skipped. */
function verticalNeighbour(element: HTMLElement, step: 1 | -1): HTMLElement | undefined {
  const { position = "" } = element.dataset;
  const column = element.closest("table")?.querySelectorAll<HTMLElement>(`[data-position="${position}"]`);
  const all = [...(column ?? [])];
  return all[all.indexOf(element) + step];
}

const MOVES: Readonly<Record<string, (element: HTMLElement) => HTMLElement | undefined>> = {
  ArrowRight: (element) => horizontalNeighbour(element, 1),
  ArrowLeft: (element) => horizontalNeighbour(element, -1),
  ArrowDown: (element) => verticalNeighbour(element, 1),
  ArrowUp: (element) => verticalNeighbour(element, -1),
};

export function heatEvents({ onEnter, onLeave, onLock }: HeatHandlers) {
  const enter = (target: EventTarget) => {
    const element = closestCell(target);
    if (element === null) onLeave();
    else onEnter(readCellPosition(element), element);
  };
  return {
    onPointerOver: (event: PointerEvent) => enter(event.target),
    onPointerLeave: onLeave,
    onFocus: (event: FocusEvent) => enter(event.target),
    onBlur: onLeave,
    onClick: (event: MouseEvent) => {
      const element = closestCell(event.target);
      if (element !== null) onLock(readCellPosition(element), element);
    },
    onKeyDown: (event: KeyboardEvent) => {
      const element = closestCell(event.target);
      const move = MOVES[event.key];
      if (element === null || move === undefined) return;
      event.preventDefault();
      move(element)?.focus();
    },
  };
}
