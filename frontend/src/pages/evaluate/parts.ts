/** The folded parts of Evaluate: which chapters are one, and which are not measured. */

import type { Chapter } from "@/api/types";

/** Chapters that are one part of the page. */
const TOGETHER: Readonly<Record<string, string>> = { frontier: "faithfulness", probing: "benchmark" };
const UNMEASURED = { key: "unmeasured", title: "Not measured yet", note: "commands that measure more" };

const isMeasured = ({ sections }: Chapter) =>
  sections.some(({ tables, figure }) => tables.length > 0 || figure !== null);

/** The folded parts: measured chapters, some of them together, and at the end what is not measured. */
export function partsOf(chapters: readonly Chapter[]): readonly Omit<Chapter, "is_folded">[] {
  const folded = chapters.filter((chapter) => chapter.is_folded);
  const measured = folded.filter(isMeasured);
  const parts = measured.filter(({ key }) => !measured.some((other) => other.key === TOGETHER[key]));
  const together = parts.map((part) => {
    const others = measured.filter(({ key }) => key !== part.key && TOGETHER[key] === part.key);
    return {
      ...part,
      title: [part.title, ...others.map(({ title }) => title.toLowerCase())].join(" and "),
      sections: [part, ...others].flatMap(({ sections }) => sections),
    };
  });
  const rest = folded.filter((chapter) => !isMeasured(chapter)).flatMap(({ sections }) => sections);
  return rest.length === 0 ? together : [...together, { ...UNMEASURED, sections: rest }];
}
