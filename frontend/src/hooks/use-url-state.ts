/** View state kept in the URL. A page declares its parameters once; default values are left out. */

import { useCallback, useMemo } from "react";
import { useLocation, useNavigate } from "react-router";

import { type Edit, formatEdits, parseEdits } from "@/lib/edits/edits";

/** One URL parameter: `read` maps null and invalid text to the default, `write` returns null to omit it. */
export interface Param<T> {
  readonly read: (text: string | null) => T;
  readonly write: (value: T) => string | null;
}

export function textParam(fallback: string): Param<string>;
export function textParam(fallback: null): Param<string | null>;
export function textParam(fallback: string | null): Param<string> | Param<string | null> {
  return {
    read: (text) => text ?? fallback,
    write: (value: string | null) => (value === fallback ? null : value),
  };
}

export interface Range {
  readonly min?: number;
  readonly max?: number;
}

function readNumber<T>(text: string | null, fallback: T, range: Range): number | T {
  if (text === null || text.trim() === "") return fallback;
  const value = Number(text);
  if (!Number.isFinite(value)) return fallback;
  return Math.min(range.max ?? Infinity, Math.max(range.min ?? -Infinity, value));
}

export function numberParam(fallback: number, range?: Range): Param<number>;
export function numberParam(fallback: null, range?: Range): Param<number | null>;
export function numberParam(fallback: number | null, range: Range = {}): Param<number> | Param<number | null> {
  return {
    read: (text) => readNumber(text, fallback, range),
    write: (value: number | null) => (value === fallback || value === null ? null : String(value)),
  };
}

export function choiceParam<const T extends string>(choices: readonly T[], fallback: T): Param<T> {
  return {
    read: (text) => choices.find((choice) => choice === text) ?? fallback,
    write: (value) => (value === fallback ? null : value),
  };
}

export const flagParam: Param<boolean> = {
  read: (text) => text === "1",
  write: (value) => (value ? "1" : null),
};

export const editsParam: Param<readonly Edit[]> = {
  read: (text) => parseEdits(text ?? ""),
  write: (value) => (value.length === 0 ? null : formatEdits(value)),
};

interface AnyParam {
  readonly read: (text: string | null) => unknown;
  readonly write: (value: never) => string | null;
}

export type Params = Readonly<Record<string, AnyParam>>;
export type Values<S extends Params> = { readonly [K in keyof S]: ReturnType<S[K]["read"]> };

export function readParams<S extends Params>(spec: S, search: string): Values<S> {
  const query = new URLSearchParams(search);
  return Object.fromEntries(
    Object.entries(spec).map(([name, param]) => [name, param.read(query.get(name))]),
  ) as Values<S>;
}

/** The parameters in the URL now. A value that was typed just before a click may not be rendered yet. */
export const currentParams = <S extends Params>(spec: S): Values<S> => readParams(spec, window.location.search);

/** The query string with `patch` applied; other parameters and their order are preserved. */
export function writeParams<S extends Params>(spec: S, search: string, patch: Partial<Values<S>>): string {
  const query = new URLSearchParams(search);
  for (const [name, value] of Object.entries(patch)) {
    const param = spec[name];
    if (param === undefined) continue;
    const text = param.write(value as never);
    if (text === null) query.delete(name);
    else query.set(name, text);
  }
  return queryText(query);
}

/** Colons and commas are legal in a query string and stay unescaped, so that URLs are readable. */
export function queryText(query: URLSearchParams): string {
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  return text === "" ? "" : `?${text}`;
}

/**
 * New values, or a function from the values in the URL now. A value that depends on the last one needs the function:
 * two fast clicks both see the values of the last render.
 */
type Patch<S extends Params> = Partial<Values<S>> | ((current: Values<S>) => Partial<Values<S>>);
export type SetParams<S extends Params> = (patch: Patch<S>, history?: "push" | "replace") => void;

/** The page's parameters and their setter, as its components receive them. */
export interface UrlState<S extends Params> {
  readonly params: Values<S>;
  readonly setParams: SetParams<S>;
}

/**
 * The page's parameters and a setter. Use `replace` (the default) for dragging and typing, `push` for changes that
 * the Back button should undo.
 */
export function useUrlState<S extends Params>(spec: S): readonly [Values<S>, SetParams<S>] {
  const { pathname, search } = useLocation();
  const navigate = useNavigate();
  const values = useMemo(() => readParams(spec, search), [spec, search]);
  const set = useCallback<SetParams<S>>(
    (patch, history = "replace") => {
      // Another page was opened in the same event: these are not its parameters.
      if (new URL(pathname, window.location.origin).pathname !== window.location.pathname) return;
      // Read the URL itself, not the last render: two changes in one event must not undo each other.
      const values = typeof patch === "function" ? patch(currentParams(spec)) : patch;
      const next = writeParams(spec, window.location.search, values);
      void navigate(
        { search: next, hash: window.location.hash },
        { replace: history === "replace", preventScrollReset: true },
      );
    },
    [navigate, pathname, spec],
  );
  return [values, set];
}
