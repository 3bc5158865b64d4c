/** Definitions of all terms on screen. */

import "./glossary.css";

import { useEffect, useState } from "react";
import { Link, useLocation } from "react-router";

import type { Column } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useColumns } from "@/hooks/use-experts";
import { inTable, isNumeric } from "@/components/experts/columns";
import { definitionOf, GLOSSARY, type TermId } from "@/lib/text/glossary";
import { PAPER_URL } from "@/lib/text/paper";

const IDS = Object.keys(GLOSSARY);

/** Headings by the term that they precede, in the order of the glossary. */
const HEADINGS: Readonly<Partial<Record<string, string>>> = {
  mxd: "Layers and experts",
  loss_increase: "Effects of an expert",
  top_tokens: "Examples, labels and similar experts",
  edit: "Steering",
  output_norm: "Routing and circuits",
  normalised_mse: "Faithfulness and health",
  interval: "Intervals and probing",
  trained_tokens: "Runs",
};
/** The last term of the statistics of an expert; columns that are not among the terms follow it. */
const LAST_STATISTIC: TermId = "entropy";

function termIds(columns: readonly Column[]): readonly string[] {
  const others = columns.filter((column) => isNumeric(column) && inTable(column) && !IDS.includes(column.key));
  return IDS.flatMap((id) => (id === LAST_STATISTIC ? [id, ...others.map(({ key }) => key)] : [id]));
}

const sectionsOf = (ids: readonly string[]) =>
  ids.reduce<readonly (readonly string[])[]>(
    (sections, id) =>
      id in HEADINGS ? [...sections, [id]] : [...sections.slice(0, -1), [...(sections.at(-1) ?? []), id]],
    [],
  );

function matches(id: string, text: string, columns: readonly Column[]): boolean {
  const { name, text: definition } = definitionOf(id, columns);
  return `${name} ${definition}`.toLowerCase().includes(text.trim().toLowerCase());
}

const sectionId = (ids: readonly string[]) => `section-${ids[0] ?? ""}`;

function Section({ ids, chosen }: { readonly ids: readonly string[]; readonly chosen: string }) {
  const { search } = useLocation();
  const columns = useColumns();
  return (
    <dl>
      {ids.map((id) => {
        const { name, text } = definitionOf(id, columns);
        return (
          <div key={id} id={id} className={id === chosen ? "chosen" : ""}>
            <dt>
              <Link to={`${search}#${id}`}>{name}</Link>
            </dt>
            <dd>{text}</dd>
          </div>
        );
      })}
    </dl>
  );
}

export default function GlossaryPage() {
  const { hash, search } = useLocation();
  const [filter, setFilter] = useState("");
  const columns = useColumns();
  const terms = termIds(columns);
  const sections = sectionsOf(terms)
    .map((ids) => ({
      heading: ids[0] && HEADINGS[ids[0]],
      ids: ids.filter((id) => matches(id, filter, columns)),
    }))
    .filter(({ ids }) => ids.length > 0);
  useEffect(() => {
    // Newer browsers return a promise, which must not be returned from an effect.
    document.getElementById(hash.slice(1))?.scrollIntoView({ block: "center" });
  }, [hash]);
  return (
    <>
      <title>Glossary · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Glossary" }]} />
      <div className="glossary">
        <p>
          MxDs are described in the paper{" "}
          <a className="link" href={PAPER_URL}>
            Towards Interpretability Without Sacrifice: Faithful Dense Layer Decomposition with Mixture of Decoders
          </a>
          . The same terms are used on every page, on the command line and in files.
        </p>
        <input
          className="field"
          type="search"
          aria-label="Filter terms"
          placeholder={`Filter ${terms.length} terms`}
          value={filter}
          onChange={(event) => setFilter(event.target.value)}
        />
        <nav aria-label="Sections">
          {sections.map(({ heading, ids }) => (
            <Link key={heading} className="link" to={`${search}#${sectionId(ids)}`}>
              {heading}
            </Link>
          ))}
        </nav>
        {sections.map(({ heading, ids }) => (
          <section key={heading}>
            <h2 id={sectionId(ids)}>{heading}</h2>
            <Section ids={ids} chosen={hash.slice(1)} />
          </section>
        ))}
        {sections.length === 0 && <p className="dim">No term contains “{filter.trim()}”.</p>}
      </div>
    </>
  );
}
