import "./styles/index.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { fetchFonts } from "@/lib/fonts";
import { applyTheme, currentTheme } from "@/lib/theme";

import { App, newQueryClient } from "./app";
import { preloadPage } from "./pages";

applyTheme(currentTheme());

const root = document.querySelector("#root");
if (root === null) throw new Error("index.html has no #root");
const queries = newQueryClient();
// Drawn once the page's own script is here: what stands in for it would be kept on screen longer than it takes.
void preloadPage(window.location.pathname).finally(() => {
  createRoot(root).render(
    <StrictMode>
      <App queries={queries} />
    </StrictMode>,
  );
});
// Behind all that the page itself has asked for.
window.addEventListener("load", () => setTimeout(fetchFonts, 1500));
