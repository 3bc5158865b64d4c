/** Properties of two runs, with the differences marked. */

import type { RunDetail } from "@/api/types";
import {
  activeK,
  encoderActivation,
  hasHiddenLayer,
  methodName,
  shortSource,
  statusName,
} from "@/components/runs/run-labels";
import { formatCompact, formatCount, formatFixed, formatPercent } from "@/lib/text/format";

import { isClose } from "./fairness";

export interface ComparedFact {
  readonly name: string;
  readonly one: string;
  readonly other: string;
  readonly differs: boolean;
}

interface FactKind {
  readonly name: string;
  /** Compared value: full names and unrounded numbers. */
  readonly value: (detail: RunDetail) => string | number | null;
  readonly isSame?: (one: string | number | null, other: string | number | null) => boolean;
  /** Displayed text; by default the value itself. */
  readonly text?: (detail: RunDetail) => string;
}

const NONE = "none";

/** Measured values and sizes within the tolerance do not count as different. */
function isSameSize(one: string | number | null, other: string | number | null): boolean {
  return typeof one === "number" && typeof other === "number" ? isClose(one, other) : one === other;
}

/** The same folder may be given as a full path or relative to the data folder. */
function isSameSource(one: string | number | null, other: string | number | null): boolean {
  const [a, b] = [`/${one ?? ""}`, `/${other ?? ""}`];
  return a.endsWith(b) || b.endsWith(a);
}

const FACTS: readonly FactKind[] = [
  {
    name: "Language model",
    value: ({ run }) => run.language_model,
    text: ({ run }) => run.language_model_name,
    isSame: isSameSource,
  },
  { name: "Layer", value: ({ run }) => run.layer },
  { name: "Method", value: ({ run }) => methodName(run.method) },
  { name: "Activation function", value: ({ run }) => encoderActivation(run) },
  { name: "Experts N", value: ({ run }) => run.num_experts, text: ({ run }) => formatCount(run.num_experts) },
  { name: "Active K", value: ({ run }) => activeK(run) },
  {
    name: "Hidden width H",
    value: ({ run }) => (hasHiddenLayer(run) ? run.hidden_width : null),
    text: ({ run }) => (hasHiddenLayer(run) ? formatCount(run.hidden_width) : NONE),
  },
  {
    name: "Parameters",
    isSame: isSameSize,
    value: ({ run }) => run.parameters,
    text: ({ run }) => formatCompact(run.parameters),
  },
  { name: "Seed", value: ({ run }) => run.seed },
  { name: "Dataset", value: ({ run }) => run.text, text: ({ run }) => shortSource(run.text), isSame: isSameSource },
  { name: "Status", value: ({ run }) => statusName(run.status) },
  {
    name: "Tokens trained",
    isSame: isSameSize,
    value: ({ run }) => run.trained_tokens,
    text: ({ run }) => formatCompact(run.trained_tokens),
  },
  {
    name: "Normalised MSE in training",
    isSame: isSameSize,
    value: ({ run }) => run.last_metric?.normalized_mse ?? null,
    text: ({ run }) => (run.last_metric === null ? NONE : formatFixed(run.last_metric.normalized_mse, 4)),
  },
  {
    name: "Dead, last 262,144 or all training tokens, %",
    value: ({ run }) => run.last_metric?.dead_share ?? null,
    text: ({ run }) => (run.last_metric === null ? NONE : formatPercent(run.last_metric.dead_share, 1)),
  },
  {
    name: "Tokens indexed",
    isSame: isSameSize,
    value: ({ run }) => run.indexed_tokens,
    text: ({ run }) => (run.indexed_tokens === null ? "not indexed" : formatCompact(run.indexed_tokens)),
  },
  {
    name: "Experts active in index",
    value: ({ run }) => run.active_experts,
    text: ({ run }) => (run.active_experts === null ? "not indexed" : formatCount(run.active_experts)),
  },
];

/** Settings that are already among the properties. */
const SHOWN_SETTINGS = [
  "name",
  "language_model",
  "layer",
  "method",
  "num_experts",
  "k",
  "min_k",
  "seed",
  "text.dataset",
  "tokens",
];

/** Settings whose key says too little. */
const SETTING_NAMES: Readonly<Record<string, string>> = {
  data_seed: "Seed of the data order",
  init: "Initialisation",
  language_model_dtype: "Precision of the language model",
  rank: "Rank of the experts",
  "gate.groups": "Groups of the gate",
  "gate.top_groups": "Active groups of the gate",
  "optimizer.batch_tokens": "Batch size, tokens",
  "optimizer.buffer_tokens": "Shuffle buffer, tokens",
  "optimizer.decay_ratio": "Decay, share of steps",
  "optimizer.matmul_precision": "Precision of matrix products",
  "optimizer.warmup_ratio": "Warm-up, share of steps",
  "regularization.k_spread": "Spread of K",
  "text.column": "Dataset column",
  "text.on_short_text": "If the dataset is too short",
  "text.split": "Dataset split",
};

/** Settings that decide how far a run gets with its tokens. */
const ALWAYS_LISTED = ["Learning rate", "Batch size, tokens"];

/** The display name of a setting: “Learning rate” for `optimizer.learning_rate`. */
function settingName(key: string): string {
  const words = key.slice(key.lastIndexOf(".") + 1).replaceAll("_", " ");
  return SETTING_NAMES[key] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

const settingText = (value: RunDetail["config"][string] | undefined) => String(value ?? NONE);

/** Rounded numbers of both runs; whole numbers where they differ but round to the same text. */
function shownTexts(
  text: (detail: RunDetail) => string,
  value: FactKind["value"],
  one: RunDetail,
  other: RunDetail,
): Pick<ComparedFact, "one" | "other"> {
  const [a, b] = [value(one), value(other)];
  const isHidden = typeof a === "number" && typeof b === "number" && a !== b && text(one) === text(other);
  return isHidden && Number.isInteger(a) && Number.isInteger(b)
    ? { one: formatCount(a), other: formatCount(b) }
    : { one: text(one), other: text(other) };
}

/** All properties, then the learning rate and step size, and the settings that differ. */
export function comparedFacts(one: RunDetail, other: RunDetail): readonly ComparedFact[] {
  const facts = FACTS.map(({ name, value, text = (detail) => String(value(detail) ?? NONE), isSame = Object.is }) => ({
    name,
    ...shownTexts(text, value, one, other),
    differs: !isSame(value(one), value(other)),
  }));
  const names = [...new Set([...Object.keys(one.config), ...Object.keys(other.config)])].sort();
  const settings = names
    .filter((name) => !SHOWN_SETTINGS.includes(name))
    .map((name) => ({
      name: settingName(name),
      one: settingText(one.config[name]),
      other: settingText(other.config[name]),
      differs: one.config[name] !== other.config[name],
    }));
  return [...facts, ...settings.filter(({ name, differs }) => differs || ALWAYS_LISTED.includes(name))];
}
