import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, gzipSync } from "node:zlib";

import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

import { documentation } from "./documentation.ts";

const OTHER_LANGUAGE = /react-(aria|stately).*\/intl\/(.*\/)?(?!en-US)[a-z]{2}-[A-Z]{2}\.m?js$/;
const SERVER = process.env.MXD_SERVER ?? "http://127.0.0.1:8000";

/** Drops React Aria's translations into other languages: the page is in English only. */
const oneLanguage: Plugin = {
  name: "one-language",
  enforce: "pre",
  load: (id) => (OTHER_LANGUAGE.test(id) ? "export default {}" : null),
};

/** Adds compressed copies of each script and style sheet, at the highest level, which the server sends as they are. */
const compressed: Plugin = {
  name: "compressed",
  apply: "build",
  async writeBundle({ dir = "dist" }, bundle) {
    const paths = Object.keys(bundle).filter((name) => /\.(js|css)$/.test(name));
    for (const path of paths.map((name) => join(dir, name))) {
      const content = await readFile(path);
      await writeFile(`${path}.gz`, gzipSync(content, { level: 9 }));
      await writeFile(`${path}.br`, brotliCompressSync(content));
    }
  },
};

export default defineConfig({
  plugins: [react(), oneLanguage, compressed, documentation],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  server: { proxy: { "/api": SERVER } },
  build: {
    target: "es2023",
    // Every browser in this list supports light-dark(), so it is not transpiled.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    // Fonts are not inlined, so that the content security policy needs no data: source.
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        // Modules that several pages share are one chunk: forty requests for small ones delay the first content.
        codeSplitting: {
          groups: [
            { name: "shared", test: /src\/(api|lib)\//, minShareCount: 3 },
            { name: "figures", test: /src\/components\//, minShareCount: 5 },
          ],
        },
      },
    },
    // Plotly is a 1.5 MB chunk that only pages with figures load.
    chunkSizeWarningLimit: 1600,
  },
  // Without isolation: a process per file would import the same modules again and again, which takes 50 s instead of 3.
  test: { include: ["src/**/*.test.ts"], environment: "node", setupFiles: ["test-setup.ts"], isolate: false },
});
