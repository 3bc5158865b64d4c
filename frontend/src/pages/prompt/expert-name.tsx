/** The name of an expert where room is tight: in the cells of layers, the boxes of a circuit, and findings. */

import type { ReactNode } from "react";

import type { RoutedExpertInfo } from "@/api/types";
import { LANGUAGE, namingLabel, nameTone } from "@/components/experts/expert-link";
import { isWholeWord } from "@/components/tokens/token-chip";

/** Words that say little by themselves. */
const FUNCTION_WORDS = new Set(
  "a an the and or but nor if of to in on at for with from by as into than then that this these those there it its i me my he him his she her they them their we us our you your who which what when where is are was were be been being am do does did has have had having will would can could shall should may might must not no so very just also all any some such".match(
    /\w+/g,
  ),
);

/** Whether a token is a word with a meaning of its own, and no part of one. */
export const isContent = (text: string) => isWholeWord(text) && !FUNCTION_WORDS.has(text.trim().toLowerCase());

export type NamedInfo = Pick<RoutedExpertInfo, "label" | "automatic" | "top_tokens">;

/** The label, else the automatic one, else the token on which the expert fires most often. */
export function expertName(info: NamedInfo | undefined): string {
  const [token] = info?.top_tokens ?? [];
  const { label, is_clear: isClear } = namingLabel(info?.automatic ?? null) ?? {};
  // A weak label without words, such as `English`, says less than a token.
  const automatic = isClear === true || label?.includes("“") === true || token === undefined ? label : undefined;
  return info?.label ?? automatic ?? (token === undefined ? "no label yet" : `“${token.trim() || "␣"}”`);
}

/** Whether quoted words hold a space, a single letter, or a token that is only found inside of words. */
function hasFragment(label: string, tokens: readonly string[]): boolean {
  const quoted = [...label.matchAll(/“([^”]+)”/g)].map(([, words = ""]) => words);
  const inner = tokens.filter((token) => /^\p{Ll}/u.test(token) && !tokens.includes(` ${token}`));
  return quoted.some((words) => /^(?![AaI]$)[\p{L}␣]$/u.test(words) || inner.includes(words));
}

/** How well the name of an expert describes it: 1 for a user label, else F1; 0 for a weak label or fragments of words. */
export function trustOf(info: NamedInfo | undefined): number {
  if (info === undefined) return 0;
  const { label, automatic, top_tokens: tokens } = info;
  if (label !== null) return 1;
  return automatic?.is_clear === true && !hasFragment(automatic.label, tokens) ? (automatic.f1 ?? 0.2) : 0;
}

/** Without the language of the label, which takes the room of the words after it. */
export function ExpertName({ info }: Pick<FoundExpertProps, "info">) {
  const name = expertName(info);
  return (
    <span className={nameTone(info?.label ?? null, info?.automatic ?? null)} title={name}>
      {name.replace(LANGUAGE, "")}
    </span>
  );
}

interface FoundExpertProps {
  readonly info: NamedInfo | undefined;
  readonly expert: number | null;
  /** Where it is. */
  readonly children?: ReactNode;
}

/** An expert in a finding: its name, how far to trust it, and its number. */
export function FoundExpert({ info, expert, children }: FoundExpertProps) {
  const automatic = namingLabel(info?.automatic ?? null);
  const weakness = automatic === null ? ", no label" : automatic.is_clear ? "" : ", weak label";
  return (
    <>
      <b>
        <ExpertName info={info} />
      </b>{" "}
      <span className="dim">
        ({expert}
        {info?.label == null && weakness}
        {children !== undefined && <>, {children}</>})
      </span>
    </>
  );
}
