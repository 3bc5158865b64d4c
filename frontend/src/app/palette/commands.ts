/** Commands of the palette that need no server: pages, runs and `steer 46 +2`. */

import { PLACES } from "@/components/layout/navigation/pages";
import type { PageName } from "@/components/runs/page-links";
import { type Edit, MAX_STRENGTH, newEdit } from "@/lib/edits/edits";

export interface Command {
  readonly key: string;
  /** Heading under which it is listed. */
  readonly group: "Steer" | "Pages" | "Experts" | "Sessions" | "Runs";
  readonly name: string;
  readonly note: string;
  readonly url: string;
}

/** `steer 46 +2`, `steer 46 -1.5` or `steer 46`: the edit of an expert; null for other text. */
export function steerCommand(text: string, numExperts: number): Edit | null {
  const match = /^steer\s+#?(\d{1,9})(?:\s+([+−-]?\d+(?:\.\d+)?))?$/i.exec(text.trim());
  const expert = Number(match?.[1]);
  if (match === null || expert >= numExperts) return null;
  const edit = newEdit(expert);
  const strength = match[2] === undefined ? edit.strength : Number(match[2].replace("−", "-"));
  return { ...edit, strength: Math.max(-MAX_STRENGTH, Math.min(MAX_STRENGTH, strength)) };
}

/** Whether the name contains the text, or every typed word begins a word of the name. */
export function matches(name: string, text: string): boolean {
  const [lowName, lowText] = [name.toLowerCase(), text.toLowerCase()];
  const words = lowName.split(/[^\p{L}\p{N}]+/u);
  return (
    lowName.includes(lowText) || lowText.split(/\s+/).every((typed) => words.some((word) => word.startsWith(typed)))
  );
}

export function pageCommands(text: string, linkTo: (page: PageName) => string): readonly Command[] {
  const views = PLACES.flatMap((place) =>
    place.views.map(({ page, name }) => ({ page, name: name === place.name ? name : `${place.name}: ${name}` })),
  );
  const all = [{ page: "home" as const, name: "Home" }, ...views, { page: "glossary" as const, name: "Glossary" }];
  return all
    .filter(({ name }) => matches(name, text))
    .map(({ page, name }) => ({ key: page, group: "Pages", name, note: "", url: linkTo(page) }));
}
