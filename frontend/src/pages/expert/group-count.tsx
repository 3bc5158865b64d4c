/** How many contexts of a group are shown, and the way to all of them. */

import { Button } from "@/components/button";

interface GroupCountProps {
  /** `7 of 20`. */
  readonly words: string;
  readonly isAll: boolean;
  readonly isOpen: boolean;
  readonly onOpen: (open: boolean) => void;
}

export function GroupCount({ words, isAll, isOpen, onOpen }: GroupCountProps) {
  if (!isOpen && isAll) return <span className="dim">{words}</span>;
  return (
    <Button size="small" variant="ghost" aria-expanded={isOpen} onClick={() => onOpen(!isOpen)}>
      {isOpen ? "Fewer" : words}
    </Button>
  );
}
