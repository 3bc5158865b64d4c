/** A term with its definition: shown on hover and focus, and linked to the Glossary page. */

import "./term.css";

import type { ReactNode } from "react";
import { Link } from "react-router";

import { usePageLinks } from "@/components/runs/page-links";
import { type Tips, useTips } from "@/components/tokens/tip-layer";
import { GLOSSARY, type TermId } from "@/lib/text/glossary";

export function Definition({ id }: { readonly id: TermId }) {
  return (
    <span className="definition">
      <b>{GLOSSARY[id].name}</b>
      {GLOSSARY[id].text}
    </span>
  );
}

/** Event handlers that show a definition at the element they belong to. */
export function definitionHandlers(id: TermId, tips: Tips) {
  const show = ({ currentTarget }: { readonly currentTarget: Element }) =>
    tips.show(currentTarget, <Definition id={id} />);
  return { onPointerEnter: show, onFocus: show, onPointerLeave: tips.hide, onBlur: tips.hide };
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
