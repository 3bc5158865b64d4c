import "./styles/index.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { applyTheme, currentTheme } from "@/lib/theme";

import { App } from "./app";

applyTheme(currentTheme());

const root = document.querySelector("#root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
