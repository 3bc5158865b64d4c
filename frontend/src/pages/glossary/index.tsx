/** Definitions of all terms on screen. */

import "./glossary.css";

import { useEffect } from "react";
import { useLocation } from "react-router";

import { PageBar } from "@/components/layout/navigation/page-bar";
import { GLOSSARY, PAPER_URL, type TermId } from "@/lib/text/glossary";

const IDS = Object.keys(GLOSSARY) as TermId[];

export default function GlossaryPage() {
  const { hash } = useLocation();
  useEffect(() => document.getElementById(hash.slice(1))?.scrollIntoView({ block: "center" }), [hash]);
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
        <dl>
          {IDS.map((id) => (
            <div key={id} id={id} className={hash === `#${id}` ? "chosen" : ""}>
              <dt>{GLOSSARY[id].name}</dt>
              <dd>{GLOSSARY[id].text}</dd>
            </div>
          ))}
        </dl>
      </div>
    </>
  );
}
