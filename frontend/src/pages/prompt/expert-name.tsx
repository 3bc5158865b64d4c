/** The name of an expert where room is tight: in the cells of layers, the boxes of a circuit, and findings. */

import type { ReactNode } from "react";

import type { RoutedExpertInfo } from "@/api/types";

/** A limit such as `English: `, which takes the room of the words that follow. */
const LIMIT = /^\p{Lu}\p{L}+(?:(?:, | or )\p{Lu}\p{L}+)*: /u;

export type NamedInfo = Pick<RoutedExpertInfo, "label" | "automatic" | "top_tokens">;

/** The label, else the automatic one, else the token on which the expert fires most often. */
export function expertName(info: NamedInfo | undefined): string {
  const [token] = info?.top_tokens ?? [];
  return info?.label ?? info?.automatic?.label ?? (token === undefined ? "no label yet" : `“${token.trim() || "␣"}”`);
}

/** Whether it has a label that is not weak. */
export const isNamed = ({ label, automatic }: NamedInfo): boolean => label !== null || automatic?.is_clear === true;

interface ExpertNameProps {
  readonly info: NamedInfo | undefined;
}

/** In grey italics if it is automatic and weak. */
export function ExpertName({ info }: ExpertNameProps) {
  const name = expertName(info);
  const isWeak = info?.label === null && info.automatic?.is_clear === false;
  return (
    <span className={isWeak ? "auto-label weak" : undefined} title={name}>
      {name.replace(LIMIT, "")}
    </span>
  );
}

/** An expert in a finding: its name, and in brackets its number and where it is. */
export function FoundExpert({ info, children }: ExpertNameProps & { readonly children: ReactNode }) {
  return (
    <>
      <b>
        <ExpertName info={info} />
      </b>{" "}
      <span className="dim">({children})</span>
    </>
  );
}
