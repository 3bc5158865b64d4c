/** The value of a slider that is committed on release, and stays where it is until the committed value arrives. */

import { useState } from "react";

interface Dragged {
  readonly value: number;
  /** The value outside when it was committed; null while it is dragged. */
  readonly replaced: number | null;
}

interface DraggedValue {
  readonly shown: number;
  readonly drag: (value: number) => void;
  readonly commit: (value: number) => void;
}

/** Key presses are faster than the URL that holds the value: without this, each would start from an outdated one. */
export function useDraggedValue(value: number, onCommit: (value: number) => void): DraggedValue {
  const [dragged, setDragged] = useState<Dragged | null>(null);
  if (dragged !== null && dragged.replaced !== null && dragged.replaced !== value) setDragged(null);
  return {
    shown: dragged?.value ?? value,
    drag: (next) => setDragged({ value: next, replaced: null }),
    commit: (next) => {
      setDragged({ value: next, replaced: value });
      onCommit(next);
    },
  };
}
