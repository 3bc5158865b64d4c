/** Writes the documentation, ../docs, as plain HTML pages beside the dashboard, so that Help opens it offline. */

import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { Marked } from "marked";
import type { Plugin } from "vite";

const DOCS = join(import.meta.dirname, "../docs");

const escape = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const anchor = (title: string) =>
  title
    .toLowerCase()
    .replace(/[^\w\s-]/g, "")
    .trim()
    .replace(/\s+/g, "-");

const markdown = new Marked({
  renderer: {
    heading({ tokens, depth, text }) {
      return `<h${depth} id="${anchor(text)}">${this.parser.parseInline(tokens)}</h${depth}>`;
    },
    link({ href, tokens }) {
      const page = href.replace(/^(?!\w+:)([^#]*)\.md/, "$1.html");
      return `<a href="${escape(page)}">${this.parser.parseInline(tokens)}</a>`;
    },
    html: ({ text }) => (text.startsWith("<!--") ? "" : escape(text)),
  },
});

async function toHtml(text: string, root: string): Promise<string> {
  const title = /^# (.*)/m.exec(text)?.[1] ?? "Documentation";
  // Directives of mkdocstrings, which only the site expands.
  const body = await markdown.parse(text.replace(/^::: (.*)$/gm, "`$1`"));
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>${escape(title)} · MxD Explorer</title><link rel="stylesheet" href="${root}style.css"><main><nav><a href="/">MxD Explorer</a> <a href="${root}index.html">Documentation</a></nav>${body}</main></html>`;
}

export const documentation: Plugin = {
  name: "documentation",
  apply: "build",
  async writeBundle({ dir = "dist" }) {
    const out = join(dir, "documentation");
    await cp(DOCS, out, { recursive: true, filter: (path) => !path.endsWith(".md") });
    const paths = await readdir(DOCS, { recursive: true });
    for (const path of paths.filter((name) => name.endsWith(".md"))) {
      const target = join(out, path.replace(/md$/, "html"));
      await mkdir(dirname(target), { recursive: true });
      const root = "../".repeat(path.split(/[\\/]/).length - 1);
      await writeFile(target, await toHtml(await readFile(join(DOCS, path), "utf8"), root));
    }
    await cp(join(import.meta.dirname, "documentation.css"), join(out, "style.css"));
  },
};
