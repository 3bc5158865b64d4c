/** Writes the documentation, ../docs, as plain HTML pages beside the dashboard, so that Help opens it offline. */

import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import type { Plugin } from "vite";

const DOCS = join(import.meta.dirname, "../docs");

const escape = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** Code, emphasis and links of one line. Links between pages lead to their HTML. */
const inline = (text: string) =>
  escape(text)
    .replace(/!\[([^\]]*)\]\(([^)]*)\)/g, '<img alt="$1" src="$2">')
    .replace(
      /\[([^\]]*)\]\(([^)\s]*)\)/g,
      (_, label: string, to: string) => `<a href="${to.replace(/^(?!\w+:)([^#]*)\.md/, "$1.html")}">${label}</a>`,
    )
    .replace(/`([^`]+)`/g, "<code>$1</code>")
    .replace(/\*\*([^*]+)\*\*/g, "<b>$1</b>");

const anchor = (title: string) =>
  title
    .toLowerCase()
    .replace(/[^\w\s-]/g, "")
    .trim()
    .replace(/\s+/g, "-");
const cells = (line: string) => line.replace(/^\||\|$/g, "").split(/(?<!\\)\|/);

/** One block between blank lines: a heading, a table, a list or a paragraph. */
function block(text: string): string {
  const lines = text.split("\n");
  const heading = /^(#+) (.*)/.exec(text);
  if (heading !== null) {
    const [, { length }, title] = heading as unknown as [string, string, string];
    return `<h${length} id="${anchor(title)}">${inline(title)}</h${length}>${block(lines.slice(1).join("\n"))}`;
  }
  if (text.startsWith("|")) {
    const rows = lines.filter((line) => !/^\|[\s:|-]+\|$/.test(line));
    return `<table>${rows
      .map(
        (row) =>
          `<tr>${cells(row)
            .map((cell) => `<td>${inline(cell)}</td>`)
            .join("")}</tr>`,
      )
      .join("")}</table>`;
  }
  if (/^(-|\d+\.) /.test(text))
    return `<ul>${text
      .split(/^(?:-|\d+\.) /m)
      .slice(1)
      .map((item) => `<li>${inline(item)}</li>`)
      .join("")}</ul>`;
  return text === "" ? "" : `<p>${inline(text)}</p>`;
}

function toHtml(markdown: string, root: string): string {
  const parts = markdown.split(/^```.*$/m);
  const body = parts.map((part, index) =>
    index % 2 === 1
      ? `<pre>${escape(part.trim())}</pre>`
      : part
          .split(/\n\s*\n/)
          .map((text) => block(text.trim()))
          .join("\n"),
  );
  const title = /^# (.*)/m.exec(markdown)?.[1] ?? "Documentation";
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>${escape(title)} · MxD Explorer</title><link rel="stylesheet" href="${root}style.css"><main><nav><a href="/">MxD Explorer</a> <a href="${root}index.html">Documentation</a></nav>${body.join("\n")}</main></html>`;
}

export const documentation: Plugin = {
  name: "documentation",
  apply: "build",
  async writeBundle({ dir = "dist" }) {
    const out = join(dir, "documentation");
    const paths = await readdir(DOCS, { recursive: true });
    for (const path of paths.filter((name) => name.endsWith(".md"))) {
      const target = join(out, path.replace(/md$/, "html"));
      await mkdir(dirname(target), { recursive: true });
      const root = "../".repeat(path.split(/[\\/]/).length - 1);
      await writeFile(target, toHtml(await readFile(join(DOCS, path), "utf8"), root));
    }
    await cp(join(DOCS, "images"), join(out, "images"), { recursive: true });
    await cp(join(DOCS, "figures"), join(out, "figures"), { recursive: true });
    await cp(join(import.meta.dirname, "documentation.css"), join(out, "style.css"));
  },
};
