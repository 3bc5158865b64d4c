/** What two runs are, fact by fact, with those in which they differ marked. */

import type { RunDetail } from "@/api/types";
import { activeK, gateName, methodName, shortSource, statusName, writtenLayers } from "@/components/run-words";
import { formatCompact, formatCount, formatFixed, formatPercent } from "@/lib/format";

export interface ComparedFact {
  readonly name: string;
  readonly one: string;
  readonly other: string;
  readonly differs: boolean;
}

interface FactKind {
  readonly name: string;
  /** What is compared: names in full, numbers with all their digits. */
  readonly value: (detail: RunDetail) => string | number | null;
  readonly isSame?: (one: string | number | null, other: string | number | null) => boolean;
  /** What is shown; by default the value itself. */
  readonly text?: (detail: RunDetail) => string;
}

const NONE = "none";

/** A folder may be named in full, or from the data folder that it lies in. */
function isSameSource(one: string | number | null, other: string | number | null): boolean {
  const [a, b] = [`/${one ?? ""}`, `/${other ?? ""}`];
  return a.endsWith(b) || b.endsWith(a);
}

const FACTS: readonly FactKind[] = [
  {
    name: "Language model",
    value: ({ run }) => run.language_model,
    text: ({ run }) => shortSource(run.language_model),
    isSame: isSameSource,
  },
  { name: "Layer", value: ({ run }) => writtenLayers(run) },
  { name: "Method", value: ({ run }) => methodName(run.method) },
  { name: "Activation", value: ({ run }) => run.activation },
  { name: "Experts N", value: ({ run }) => run.num_experts, text: ({ run }) => formatCount(run.num_experts) },
  { name: "Active K", value: ({ run }) => activeK(run) },
  { name: "Gate", value: ({ run }) => gateName(run.gate) },
  { name: "Hidden width H", value: ({ run }) => run.hidden_width, text: ({ run }) => formatCount(run.hidden_width) },
  { name: "Parameters", value: ({ run }) => run.parameters, text: ({ run }) => formatCompact(run.parameters) },
  { name: "Seed", value: ({ run }) => run.seed },
  { name: "Text", value: ({ run }) => run.text, text: ({ run }) => shortSource(run.text), isSame: isSameSource },
  { name: "Status", value: ({ run }) => statusName(run.status) },
  { name: "Tokens fitted", value: ({ run }) => run.tokens_done, text: ({ run }) => formatCompact(run.tokens_done) },
  {
    name: "Normalised MSE",
    value: ({ run }) => run.last_metric?.normalised_mse ?? null,
    text: ({ run }) => (run.last_metric === null ? NONE : formatFixed(run.last_metric.normalised_mse, 4)),
  },
  {
    name: "Dead share, %",
    value: ({ run }) => run.last_metric?.dead_share ?? null,
    text: ({ run }) => (run.last_metric === null ? NONE : formatPercent(run.last_metric.dead_share, 1)),
  },
  {
    name: "Tokens indexed",
    value: ({ run }) => run.indexed_tokens,
    text: ({ run }) => (run.indexed_tokens === null ? "not indexed" : formatCompact(run.indexed_tokens)),
  },
  {
    name: "Experts active",
    value: ({ run }) => run.experts_active,
    text: ({ run }) => (run.experts_active === null ? "not indexed" : formatCount(run.experts_active)),
  },
];

/** Settings that stand among the facts already. */
const SHOWN = [
  "name",
  "language_model",
  "layer",
  "method",
  "num_experts",
  "k",
  "smallest_k",
  "gate.gate",
  "seed",
  "text.text",
  "tokens",
];

const settingText = (value: RunDetail["config"][string] | undefined) => String(value ?? NONE);

/** Every fact, then the settings in which the two differ. */
export function comparedFacts(one: RunDetail, other: RunDetail): readonly ComparedFact[] {
  const facts = FACTS.map(({ name, value, text = (detail) => String(value(detail) ?? NONE), isSame = Object.is }) => ({
    name,
    one: text(one),
    other: text(other),
    differs: !isSame(value(one), value(other)),
  }));
  const names = [...new Set([...Object.keys(one.config), ...Object.keys(other.config)])].sort();
  const settings = names
    .filter((name) => !SHOWN.includes(name))
    .map((name) => ({
      name: name.replaceAll("_", " "),
      one: settingText(one.config[name]),
      other: settingText(other.config[name]),
      differs: one.config[name] !== other.config[name],
    }));
  return [...facts, ...settings.filter((setting) => setting.differs)];
}
