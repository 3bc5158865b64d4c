/** A term with its definition: shown on hover and focus, and linked to the Glossary page. */

import "./term.css";

import type { ReactNode } from "react";
import { Link } from "react-router";

import { usePageLinks } from "@/components/runs/page-links";
import { type Tips, useTips } from "@/components/tokens/tip-layer";
import type { TermId } from "@/lib/text/glossary";

function Definition({ name, children }: { readonly name: string; readonly children: string }) {
  return (
    <span className="definition">
      <b>{name}</b>
      {children}
    </span>
  );
}

/**
 * Event handlers that show a definition at the element they belong to. The definitions are loaded on first use; the tip
 * is left out if the pointer and the focus have moved on by then.
 */
export function definitionHandlers(id: TermId, tips: Tips) {
  const show = ({ currentTarget }: { readonly currentTarget: Element }) => {
    const showDefinition = ({ GLOSSARY }: typeof import("@/lib/text/glossary")) => {
      if (!currentTarget.matches(":hover, :focus")) return;
      const { name, text } = GLOSSARY[id];
      tips.show(currentTarget, <Definition name={name}>{text}</Definition>);
    };
    import("@/lib/text/glossary").then(showDefinition, () => undefined);
  };
  return { onPointerEnter: show, onFocus: show, onPointerLeave: tips.hide, onBlur: tips.hide };
}

interface DescribedProps {
  /** Shown on hover and focus. */
  readonly description: string;
  readonly children: string;
}

/** A name whose description is not in the glossary. */
export function Described({ description, children }: DescribedProps) {
  const tips = useTips();
  const show = ({ currentTarget }: { readonly currentTarget: Element }) =>
    tips.show(currentTarget, <Definition name={children}>{description}</Definition>);
  return (
    <button
      type="button"
      className="term described"
      onPointerEnter={show}
      onFocus={show}
      onPointerLeave={tips.hide}
      onBlur={tips.hide}
    >
      {children}
    </button>
  );
}

interface TermProps {
  readonly id: TermId;
  readonly children: ReactNode;
}

export function Term({ id, children }: TermProps) {
  const links = usePageLinks();
  const handlers = definitionHandlers(id, useTips());
  return (
    <Link className="term" to={`${links.page("glossary")}#${id}`} {...handlers}>
      {children}
    </Link>
  );
}
