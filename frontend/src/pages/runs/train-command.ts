/** Command that trains a run again with some settings changed. */

import type { RunDetail } from "@/api/types";

type RunConfig = RunDetail["config"];

interface TrainedRun {
  readonly name: string;
  readonly language_model: string;
  readonly layer: number;
  readonly method: string;
  readonly text: string;
  readonly target_tokens: number;
  readonly k: number;
  readonly num_experts: number;
}

/** Settings with their flags, and the value for which the flag is left out. */
const SETTINGS: readonly (readonly [setting: string, flag: string, omitted?: string | number])[] = [
  ["text.column", "--column", "text"],
  ["text.split", "--split", "train"],
  ["text.start_token", "--start-token", "<|endoftext|>"],
  ["language_model_dtype", "--dtype"],
  ["rank", "--rank"],
  ["min_k", "--min-k"],
  ["mixing", "--mixing", "auto"],
  ["optimizer.learning_rate", "--learning-rate"],
  ["optimizer.warmup_ratio", "--warmup-ratio", 0.05],
  ["optimizer.decay_ratio", "--decay-ratio", 0.3],
  ["optimizer.batch_tokens", "--batch-tokens"],
  ["optimizer.buffer_tokens", "--buffer-tokens", 65_536],
  ["optimizer.matmul_precision", "--matmul-precision", "auto"],
  ["text.context_length", "--example-length"],
  ["text.on_short_text", "--on-short-text"],
  ["regularization.k_spread", "--k-spread", 0],
  ["regularization.load_balance_weight", "--load-balance-weight", 0],
  ["init", "--init", "auto"],
  ["seed", "--seed"],
  ["data_seed", "--data-seed"],
];

/** A value that a shell reads as one word. */
const quoted = (value: string) => (/^[\w.,:/@+-]+$/.test(value) ? value : `"${value}"`);

function settingFlags(config: RunConfig): readonly (readonly [string, string])[] {
  return SETTINGS.flatMap(([setting, flag, omitted]) => {
    const value = config[setting];
    return value == null || value === omitted ? [] : [[flag, String(value)] as const];
  });
}

/** `changes` are flags with their values. All other settings are those of the run. */
export function trainCommand(run: TrainedRun, config: RunConfig, changes: Readonly<Record<string, string>>): string {
  const flags: Readonly<Record<string, string>> = {
    "--name": run.name,
    "--layer": String(run.layer),
    "--method": run.method,
    "--num-experts": String(run.num_experts),
    "--k": String(run.k),
    "--dataset": run.text,
    "--tokens": String(run.target_tokens || "2M"),
    ...Object.fromEntries(settingFlags(config)),
    ...changes,
  };
  const options = Object.entries(flags).map(([flag, value]) => `${flag} ${quoted(value)}`);
  return ["mxd train", quoted(run.language_model), ...options].join(" ");
}
