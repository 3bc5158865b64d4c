/** Terms with their definitions: shown on hover and focus, and linked to the Glossary page. */

import "./term.css";

import { type QueryClient, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { columnsQuery } from "@/api/queries";
import type { Column, TermId } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { hideTip, showTip } from "@/components/tokens/tip-layer";

export interface Definition {
  readonly name: string;
  readonly text: string;
}

/** Event handlers that show a definition at the element they belong to. */
export function describe({ name, text }: Definition) {
  const show = ({ currentTarget }: { readonly currentTarget: Element }) =>
    showTip(
      currentTarget,
      <span className="definition">
        <b>{name}</b>
        {text}
      </span>,
    );
  return { onPointerEnter: show, onFocus: show, onPointerLeave: hideTip, onBlur: hideTip };
}

/**
 * Event handlers that show a term's definition. Definitions are loaded on first use; the tip is left out if the pointer
 * and the focus have moved on by then.
 */
export function definitionHandlers(id: TermId, queries: QueryClient) {
  const show = (event: { readonly currentTarget: Element }) => {
    const { currentTarget } = event;
    queries.query(columnsQuery).then(
      ({ glossary }) => {
        const definition = glossary.flatMap(({ terms }) => terms).find((term) => term.id === id);
        if (definition !== undefined && currentTarget.matches(":hover, :focus"))
          describe(definition).onFocus({ currentTarget });
      },
      () => undefined,
    );
  };
  return { onPointerEnter: show, onFocus: show, onPointerLeave: hideTip, onBlur: hideTip };
}

export const useTermName = (id: TermId): string | undefined =>
  useSuspenseQuery(columnsQuery)
    .data.glossary.flatMap(({ terms }) => terms)
    .find((term) => term.id === id)?.name;

interface DefinedProps {
  readonly id: string;
  readonly handlers: ReturnType<typeof describe>;
  readonly children: ReactNode;
}

function Defined({ id, handlers, children }: DefinedProps) {
  const links = usePageLinks();
  return (
    <Link className="term" to={`${links.page("glossary")}#${id}`} {...handlers}>
      {children}
    </Link>
  );
}

interface DescribedProps {
  /** Shown on hover and focus. */
  readonly description: string;
  /** The term of the glossary that says more. */
  readonly term?: string | null;
  readonly children: string;
}

/** A name with a description that is not the glossary's. */
export function Described({ description, term = null, children }: DescribedProps) {
  const handlers = describe({ name: children, text: description });
  if (term !== null) return <Defined id={term} handlers={handlers} children={children} />;
  return (
    <button type="button" className="term" {...handlers}>
      {children}
    </button>
  );
}

export function Term({ id, children }: { readonly id: TermId; readonly children: ReactNode }) {
  return <Defined id={id} handlers={definitionHandlers(id, useQueryClient())} children={children} />;
}

interface ColumnTermProps {
  readonly column: Column;
  readonly children: ReactNode;
}

/** A column of the experts as a term. */
export function ColumnTerm({ column: { key, title, description }, children }: ColumnTermProps) {
  return <Defined id={key} handlers={describe({ name: title, text: description })} children={children} />;
}

const LINK = /\[([^\]]*)\]\((\/[^)\s]*|https:\/\/[^)\s]*)\)/;
const GLOSSARY = "/glossary#";

function TextLink({ words, address }: { readonly words: string; readonly address: string }) {
  if (address.startsWith(GLOSSARY)) return <Term id={address.slice(GLOSSARY.length) as TermId}>{words}</Term>;
  if (address.startsWith("/"))
    return (
      <Link className="link" to={address}>
        {words}
      </Link>
    );
  return (
    <a className="link" href={address}>
      {words}
    </a>
  );
}

export function LinkedText({ text }: { readonly text: string }) {
  // The pattern has two groups, so the parts are text, words, address, text, words, address … text.
  const parts = text.split(LINK);
  return parts.map((part, i) => {
    if (i % 3 === 2) return null;
    return i % 3 === 0 ? part : <TextLink key={i} words={part} address={parts[i + 1] ?? ""} />;
  });
}
