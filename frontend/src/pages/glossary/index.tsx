/** Definitions of all terms on screen. */

import "./glossary.css";

import { useSuspenseQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useLocation } from "react-router";

import { columnsQuery } from "@/api/queries";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { PAPER_URL } from "@/lib/text/paper";

const sectionId = (heading: string) => `section-${heading.toLowerCase().replaceAll(/\W+/g, "-")}`;

/** Sections with the terms that contain a text. */
function useTerms(filter: string) {
  const { glossary } = useSuspenseQuery(columnsQuery).data;
  const wanted = filter.trim().toLowerCase();
  const sections = glossary.map(({ heading, terms }) => ({
    heading,
    terms: terms.filter(({ name, text }) => `${name} ${text}`.toLowerCase().includes(wanted)),
  }));
  const numTerms = glossary.flatMap(({ terms }) => terms).length;
  return { sections: sections.filter(({ terms }) => terms.length > 0), numTerms };
}

export default function GlossaryPage() {
  const { hash, search } = useLocation();
  const [filter, setFilter] = useState("");
  const { sections, numTerms } = useTerms(filter);
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
          placeholder={`Filter ${numTerms} terms`}
          value={filter}
          onChange={(event) => setFilter(event.target.value)}
        />
        <nav aria-label="Sections">
          {sections.map(({ heading }) => (
            <Link key={heading} className="link" to={`${search}#${sectionId(heading)}`}>
              {heading}
            </Link>
          ))}
        </nav>
        {sections.map(({ heading, terms }) => (
          <section key={heading}>
            <h2 id={sectionId(heading)}>{heading}</h2>
            <dl>
              {terms.map(({ id, name, text }) => (
                <div key={id} id={id} className={`#${id}` === hash ? "chosen" : ""}>
                  <dt>
                    <Link to={`${search}#${id}`}>{name}</Link>
                  </dt>
                  <dd>{text}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        {sections.length === 0 && <p className="dim">No term contains “{filter.trim()}”.</p>}
      </div>
    </>
  );
}
