import { fileURLToPath } from "node:url";

import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const SERVER = process.env.MXD_SERVER ?? "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  server: { proxy: { "/api": SERVER } },
  build: {
    target: "es2023",
    // light-dark() stays as it is: every browser of this list knows it.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    // Fonts stay files, so that a strict content security policy needs no data: source.
    assetsInlineLimit: 0,
    // Plotly alone is 1.5 MB; it is a chunk of its own that only figures load.
    chunkSizeWarningLimit: 1600,
  },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
