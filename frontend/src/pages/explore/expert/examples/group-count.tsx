/** Number of examples shown in a group, as a button that expands it. */

import { Button } from "@/components/ui/button";

interface GroupCountProps {
  /** For example `7 of 20`. */
  readonly text: string;
  readonly isAll: boolean;
  readonly isOpen: boolean;
  readonly onOpen: (open: boolean) => void;
}

export function GroupCount({ text, isAll, isOpen, onOpen }: GroupCountProps) {
  if (!isOpen && isAll) return <span className="dim">{text}</span>;
  return (
    <Button size="small" variant="ghost" aria-expanded={isOpen} onClick={() => onOpen(!isOpen)}>
      {isOpen ? "Show fewer" : text}
    </Button>
  );
}
