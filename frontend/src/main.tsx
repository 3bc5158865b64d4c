import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App, newQueryClient } from "./app/app";
import { preloadPage } from "./app/routes";

import "./styles/index.css";

const LATIN = /^U\+0*(0|100)-/i;

/** Load the Latin fonts that the page has not requested yet. Failures are ignored: the fallback font remains. */
function fetchFonts(): void {
  for (const face of document.fonts) if (LATIN.test(face.unicodeRange)) face.load().catch(() => undefined);
}

const root = document.querySelector("#root");
if (root === null) throw new Error("index.html has no #root");
const queries = newQueryClient();
// Render once the page's chunk is loaded: a placeholder would stay on screen for longer than the load takes.
void preloadPage(window.location.pathname).finally(() => {
  createRoot(root).render(
    <StrictMode>
      <App queries={queries} />
    </StrictMode>,
  );
});
// After everything that the page itself has requested.
window.addEventListener("load", () => setTimeout(fetchFonts, 1500));
