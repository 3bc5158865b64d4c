import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const OTHER_LANGUAGE = /react-(aria|stately).*\/intl\/.*\/(?!en-US)[a-z]{2}-[A-Z]{2}\.m?js$/;
const SERVER = process.env.MXD_SERVER ?? "http://127.0.0.1:8000";

/** What the components say by themselves (“1 option available”) in the language of the page, not in thirty more. */
const oneLanguage: Plugin = {
  name: "one-language",
  enforce: "pre",
  load: (id) => (OTHER_LANGUAGE.test(id) ? "export default {}" : null),
};

/** Each script and style sheet a second time, compressed once and as far as it goes; the server hands these out. */
const compressed: Plugin = {
  name: "compressed",
  apply: "build",
  async writeBundle({ dir = "dist" }, bundle) {
    const paths = Object.keys(bundle).filter((name) => /\.(js|css)$/.test(name));
    for (const path of paths.map((name) => join(dir, name))) {
      await writeFile(`${path}.gz`, gzipSync(await readFile(path), { level: 9 }));
    }
  },
};

export default defineConfig({
  plugins: [react(), oneLanguage, compressed],
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
