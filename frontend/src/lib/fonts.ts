/** The fonts' rarer letters, fetched before they are wanted. A font that arrives while one scrolls lays out every token
 *  on the page again, and a foreign word among the tokens is enough to want one. */

/** All fonts that the page has not asked for yet. One that cannot be had is done without. */
export function fetchFonts(): void {
  for (const face of document.fonts) face.load().catch(() => undefined);
}
