/** Pointer, focus and keys for the whole map: hover previews, click locks, arrows go from cell to cell. */

import type { FocusEvent, KeyboardEvent, MouseEvent, PointerEvent } from "react";

export interface Place {
  readonly position: number;
  /** null for the token at the head of the column. */
  readonly expert: number | null;
}

interface HeatHandlers {
  readonly onEnter: (place: Place, element: HTMLElement) => void;
  readonly onLeave: () => void;
  readonly onLock: (place: Place) => void;
}

function placeElement(target: EventTarget): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>("[data-position]") : null;
}

function placeOf(element: HTMLElement): Place {
  const { position = "", expert } = element.dataset;
  return { position: Number(position), expert: expert === undefined ? null : Number(expert) };
}

function beside(element: HTMLElement, step: 1 | -1): HTMLElement | undefined {
  const row = [...(element.closest("tr")?.querySelectorAll<HTMLElement>("[data-position]") ?? [])];
  return row[row.indexOf(element) + step];
}

/** The next place above or below in the same column; cells where the expert is not active are passed over. */
function above(element: HTMLElement, step: 1 | -1): HTMLElement | undefined {
  const column = element
    .closest("table")
    ?.querySelectorAll<HTMLElement>(`[data-position="${element.dataset.position ?? ""}"]`);
  const all = [...(column ?? [])];
  return all[all.indexOf(element) + step];
}

const MOVES: Readonly<Record<string, (element: HTMLElement) => HTMLElement | undefined>> = {
  ArrowRight: (element) => beside(element, 1),
  ArrowLeft: (element) => beside(element, -1),
  ArrowDown: (element) => above(element, 1),
  ArrowUp: (element) => above(element, -1),
};

export function heatEvents({ onEnter, onLeave, onLock }: HeatHandlers) {
  const enter = (target: EventTarget) => {
    const element = placeElement(target);
    if (element === null) onLeave();
    else onEnter(placeOf(element), element);
  };
  return {
    onPointerOver: (event: PointerEvent) => enter(event.target),
    onPointerLeave: onLeave,
    onFocus: (event: FocusEvent) => enter(event.target),
    onBlur: onLeave,
    onClick: (event: MouseEvent) => {
      const element = placeElement(event.target);
      if (element !== null) onLock(placeOf(element));
    },
    onKeyDown: (event: KeyboardEvent) => {
      const element = placeElement(event.target);
      const move = MOVES[event.key];
      if (element === null || move === undefined) return;
      event.preventDefault();
      move(element)?.focus();
    },
  };
}
