/**
 * Load the remaining font subsets in advance. A font that arrives while scrolling would lay out every token again,
 * and one foreign word is enough to request it.
 */

/** Load all fonts that the page has not requested yet. Failures are ignored: the fallback font remains. */
export function fetchFonts(): void {
  for (const face of document.fonts) face.load().catch(() => undefined);
}
