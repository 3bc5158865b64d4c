/**
 * Presentation: full screen, everything at 150 %, without status line and search. It behaves as the browser's zoom does:
 * rules for narrow windows apply as if the window were narrower by the same factor.
 */

const SCALE = 1.5;
const originals = new WeakMap<CSSMediaRule, string>();
let isOn = false;

/** Pixels of the window per pixel of the page. */
export const pageScale = (): number => (isOn ? SCALE : 1);

function scaleMediaRules(): void {
  for (const sheet of document.styleSheets) {
    for (const rule of sheet.cssRules) {
      if (!(rule instanceof CSSMediaRule)) continue;
      const original = originals.get(rule) ?? rule.media.mediaText;
      originals.set(rule, original);
      rule.media.mediaText = original.replace(/([\d.]+)px/g, (_, pixels) => `${Number(pixels) * pageScale()}px`);
    }
  }
}

function setPresenting(on: boolean): void {
  isOn = on;
  document.documentElement.toggleAttribute("data-presentation", on);
  scaleMediaRules();
  const change = on ? "addEventListener" : "removeEventListener";
  // Escape leaves full screen without a key event.
  document[change]("fullscreenchange", onFullScreen);
  // A page's styles load with it; load events do not bubble.
  document.head[change]("load", scaleMediaRules, true);
  window.dispatchEvent(new Event("resize"));
}

function onFullScreen(): void {
  if (document.fullscreenElement === null) setPresenting(false);
}

/** Begin or end the presentation. Without permission for full screen, it fills the window. */
export function togglePresentation(): void {
  const ignore = () => undefined;
  setPresenting(!isOn);
  if (isOn) document.documentElement.requestFullscreen().catch(ignore);
  else if (document.fullscreenElement !== null) document.exitFullscreen().catch(ignore);
}
