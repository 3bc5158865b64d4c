/** A term with its definition: shown on hover and focus, and linked to the Glossary page. */

import "./term.css";

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { columnsQuery } from "@/api/queries";
import type { Column } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { type Tips, useTips } from "@/components/tokens/tip-layer";
import type { TermId } from "@/lib/text/glossary";

type Columns = readonly Column[];

export interface Definition {
  readonly name: string;
  readonly text: string;
}

/** Event handlers that show a definition at the element they belong to. */
export function describe({ name, text }: Definition, tips: Tips) {
  const show = ({ currentTarget }: { readonly currentTarget: Element }) =>
    tips.show(
      currentTarget,
      <span className="definition">
        <b>{name}</b>
        {text}
      </span>,
    );
  return { onPointerEnter: show, onFocus: show, onPointerLeave: tips.hide, onBlur: tips.hide };
}

/**
 * Event handlers that show a term's definition. Definitions are loaded on first use; the tip is left out if the pointer
 * and the focus have moved on by then.
 */
export function definitionHandlers(id: TermId, tips: Tips, queries: QueryClient) {
  const show = (event: { readonly currentTarget: Element }) => {
    const { currentTarget } = event;
    const showDefinition = ([{ definitionOf }, columns]: readonly [typeof import("@/lib/text/glossary"), Columns]) => {
      if (currentTarget.matches(":hover, :focus")) describe(definitionOf(id, columns), tips).onFocus({ currentTarget });
    };
    Promise.all([import("@/lib/text/glossary"), queries.query(columnsQuery)]).then(showDefinition, () => undefined);
  };
  return { onPointerEnter: show, onFocus: show, onPointerLeave: tips.hide, onBlur: tips.hide };
}

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
  const handlers = describe({ name: children, text: description }, useTips());
  if (term !== null) return <Defined id={term} handlers={handlers} children={children} />;
  return (
    <button type="button" className="term described" {...handlers}>
      {children}
    </button>
  );
}

export function Term({ id, children }: { readonly id: TermId; readonly children: ReactNode }) {
  return <Defined id={id} handlers={definitionHandlers(id, useTips(), useQueryClient())} children={children} />;
}

interface ColumnTermProps {
  readonly column: Column;
  readonly children: ReactNode;
}

/** A column of the experts as a term. */
export function ColumnTerm({ column: { key, title, description }, children }: ColumnTermProps) {
  return <Defined id={key} handlers={describe({ name: title, text: description }, useTips())} children={children} />;
}
