/** What the page shows of an expert, as files: its statistics, and its contexts as they stand on screen. */

import type { Context, ExpertDetail } from "@/api/types";
import type { FigureTable } from "@/components/figure/figure-data";
import { ALIGNED_AFTER, ALIGNED_BEFORE, type ConcordanceMode, SNIPPET_TOKENS } from "@/components/tokens/concordance";
import { drawnText } from "@/components/tokens/token-text";
import { kwicWindow, type Piece, pieces, snippet } from "@/lib/kwic";

/** How contexts are drawn. */
export interface ContextLook {
  readonly view: ConcordanceMode;
  readonly breaks: boolean;
}

/** The contexts of one heading, in the order on screen. */
export interface ShownGroup {
  /** `top`, `interval 1`, …, `at random`. */
  readonly name: string;
  /** Bounds of the coefficient; null for the group over all of them. */
  readonly low: number | null;
  readonly high: number | null;
  /** Share of the active tokens. */
  readonly share: number | null;
  readonly contexts: readonly Context[];
  /** Left out because they read the same as one that is shown. */
  readonly folded: number;
}

interface ShownText {
  readonly before: string;
  readonly token: string;
  readonly after: string;
}

function windowOf(context: Context, view: ConcordanceMode) {
  if (view === "aligned") return kwicWindow(context, ALIGNED_BEFORE, ALIGNED_AFTER);
  const all = view === "full" ? pieces(context) : snippet(context, SNIPPET_TOKENS);
  const peak = all.find((piece) => piece.index === context.position);
  if (peak === undefined) return null;
  return {
    left: all.filter((piece) => piece.index < context.position),
    peak,
    right: all.filter((piece) => piece.index > context.position),
  };
}

/** A context as wide as it is drawn, in three parts that make the whole. */
export function shownText(context: Context, { view, breaks }: ContextLook): ShownText {
  const layout = view === "full" ? "block" : "line";
  const drawn = (shown: readonly Piece[]) => shown.map((piece) => drawnText(piece.text, layout, breaks)).join("");
  const window = windowOf(context, view);
  if (window === null) return { before: "", token: "", after: "" };
  return { before: drawn(window.left), token: drawn([window.peak]), after: drawn(window.right) };
}

const CONTEXT_COLUMNS = [
  "group",
  "low",
  "high",
  "share of active tokens",
  "coefficient",
  "sequence",
  "position",
  "before",
  "token",
  "after",
] as const;

const cell = (value: number | null) => (value === null ? "" : String(value));

/** One row a context. */
export function contextsTable(groups: readonly ShownGroup[], look: ContextLook): FigureTable {
  const rows = groups.flatMap(({ name, low, high, share, contexts }) =>
    contexts.map((context) => {
      const { before, token, after } = shownText(context, look);
      const place = [String(context.coefficient), String(context.sequence), String(context.position)];
      return [name, cell(low), cell(high), cell(share), ...place, before, token, after];
    }),
  );
  return { columns: CONTEXT_COLUMNS, rows };
}

/** One row a figure. */
export function statisticsTable({ row }: ExpertDetail): FigureTable {
  const figures: readonly (readonly [string, string])[] = [
    ["expert", String(row.expert)],
    ["label", row.label ?? ""],
    ["automatic label", row.automatic?.label ?? ""],
    ["usage, share of tokens", String(row.usage)],
    ["active tokens", String(row.active_tokens)],
    ["mean when active", String(row.mean)],
    ["99th percentile", String(row.p99)],
    ["largest coefficient", String(row.largest)],
    ["token entropy, bits", String(row.entropy)],
  ];
  const tokens = row.top_tokens.map(({ text, share }) => [
    `share of active tokens on ${JSON.stringify(text)}`,
    String(share),
  ]);
  const width = row.histogram_high / row.histogram.length;
  const bins = row.histogram.map((count, i) => [
    `tokens with coefficient ${i * width} to ${(i + 1) * width}`,
    String(count),
  ]);
  return { columns: ["statistic", "value"], rows: [...figures, ...tokens, ...bins] };
}

function contextJson(context: Context, look: ContextLook) {
  const { coefficient, sequence, position } = context;
  return { coefficient, sequence, position, ...shownText(context, look), active: context.active };
}

/** Everything in one. `draw`: seed of the contexts at random. */
export function expertJson(
  run: string,
  detail: ExpertDetail,
  groups: readonly ShownGroup[],
  look: ContextLook & { readonly draw: number },
): string {
  const { view, breaks, draw } = look;
  const drawn = groups.map(({ contexts, ...group }) => ({
    ...group,
    contexts: contexts.map((context) => contextJson(context, look)),
  }));
  return JSON.stringify({ run, ...detail, shown: { view, breaks, draw }, groups: drawn }, null, 2);
}
