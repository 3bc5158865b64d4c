/** URL parameters of an expert's page. */

import { CONCORDANCE_MODES, type ExampleToken } from "@/components/tokens/concordance";
import { choiceParam, flagParam, numberParam, type Param, textParam, type Values } from "@/hooks/use-url-state";

/** Group number of the random sample; the other groups have their bin's number. */
export const RANDOM_GROUP = -1;

const MAX_SEED = 2 ** 31 - 1;

const readGroup = (text: string | undefined) => (text === "r" ? RANDOM_GROUP : Number(text));
const writeGroup = (group: number) => (group === RANDOM_GROUP ? "r" : String(group));

/**
 * A locked token as `bin.rank.position`. The bin is `r` for the random sample, where rank is the index in the sample.
 */
export const lockParam: Param<ExampleToken | null> = {
  read: (text) => {
    const match = /^(\d+|r)\.(\d+)\.(\d+)$/.exec(text ?? "");
    if (match === null) return null;
    return { bin: readGroup(match[1]), rank: Number(match[2]), position: Number(match[3]) };
  },
  write: (token) => (token === null ? null : `${writeGroup(token.bin)}.${token.rank}.${token.position}`),
};

/** Expanded groups, e.g. `0.2.r`. */
export const openParam: Param<readonly number[]> = {
  read: (text) =>
    (text ?? "")
      .split(".")
      .filter((part) => /^(\d+|r)$/.test(part))
      .map(readGroup),
  write: (groups) => (groups.length === 0 ? null : groups.map(writeGroup).join(".")),
};

const shownParam: Param<boolean> = {
  read: (text) => text !== "0",
  write: (isShown) => (isShown ? null : "0"),
};

/** Prompt of the steered texts at first: neutral, so that an expert's effect shows. */
export const STEER_PROMPT = "When I opened the door, I saw";

export const EXPERT_PARAMS = {
  view: choiceParam(CONCORDANCE_MODES, "aligned"),
  /** Whether line breaks and tabs are shown as symbols, as on the other pages. */
  breaks: shownParam,
  by: choiceParam(["gate", "output", "tokens", "coactivation"], "gate"),
  open: openParam,
  lock: lockParam,
  /** Seed of the random sample. */
  seed: numberParam(0, { min: 0, max: MAX_SEED }),
  test: textParam(""),
  /** Whether all stored examples are shown, not a few of mixed strengths. */
  all: flagParam,
  /** Prompt of the steered texts; empty for the neutral one. */
  steer: textParam(""),
  /** Whether the details are open. */
  details: flagParam,
};

/**
 * Whether the examples of all strengths are shown: asked for, or a weaker group is open or has the locked token. The
 * first example of a range may be among those of mixed strengths.
 */
export function showsAll({ all, open, lock }: Pick<Values<typeof EXPERT_PARAMS>, "all" | "open" | "lock">): boolean {
  const isWeaker = lock !== null && lock.bin !== 0 && (lock.rank > 0 || lock.bin === RANDOM_GROUP);
  return all || open.some((group) => group !== 0) || isWeaker;
}
