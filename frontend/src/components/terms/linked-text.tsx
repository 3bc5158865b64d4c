/** A text of the server with its Markdown links: to terms, pages of the dashboard and the web. */

import { Link } from "react-router";

import type { TermId } from "@/lib/text/glossary";

import { Term } from "./term";

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
