/** Where the window stands on the page, read once when it moves. Read later, when rows have changed, the same two numbers
 *  would make the browser lay the page out at once, and again before it paints. */

interface Outlook {
  /** Pixels of the page above the window. */
  readonly top: number;
  readonly height: number;
}

const MOVES = ["scroll", "resize"] as const;
const followers = new Set<() => void>();
let seen: Outlook = { top: 0, height: 0 };

function look(): void {
  seen = { top: window.scrollY, height: window.innerHeight };
}

function follow(): void {
  look();
  for (const moved of followers) moved();
}

/** As it was when the window last moved; for those who follow it. */
export const outlook = (): Outlook => seen;

/** Calls back after every move, until what it returns is called. */
export function followOutlook(moved: () => void): () => void {
  look();
  if (followers.size === 0) for (const name of MOVES) window.addEventListener(name, follow, { passive: true });
  followers.add(moved);
  return () => {
    followers.delete(moved);
    if (followers.size === 0) for (const name of MOVES) window.removeEventListener(name, follow);
  };
}
