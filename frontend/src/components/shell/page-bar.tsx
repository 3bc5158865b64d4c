/** The bar over a page: where we are, search, Copy link, and what the page adds. */

import { Fragment, type ReactNode } from "react";
import { Link } from "react-router";

import { formatEdits } from "@/lib/edits";
import { queryText } from "@/url-state";

import { Button } from "../button";
import { CopyButton } from "../copy-button";
import { BrandMark, Icon } from "../icon";
import { usePageLinks } from "../links";
import { useTray } from "../tray/tray-context";
import { RunChooser } from "./run-chooser";
import { SearchBox } from "./search-box";
import { useSearchDialog } from "./search-dialog";

interface Crumb {
  readonly label: string;
  readonly to?: string;
  /** What travels with the link and is not in its address. */
  readonly state?: unknown;
}

interface PageBarProps {
  /** From the section to the page; the last is the page itself. */
  readonly crumbs: readonly Crumb[];
  readonly note?: string;
  readonly children?: ReactNode;
  /** False where the page has its own search. */
  readonly withSearch?: boolean;
}

function CrumbTrail({ crumbs, note }: Pick<PageBarProps, "crumbs" | "note">) {
  return (
    <nav className="crumb wide" aria-label="Where you are">
      {crumbs.map((crumb, i) => (
        <Fragment key={crumb.label}>
          {i > 0 && <span>/</span>}
          {crumb.to === undefined ? (
            <b aria-current="page">{crumb.label}</b>
          ) : (
            <Link to={crumb.to} state={crumb.state}>
              {crumb.label}
            </Link>
          )}
        </Fragment>
      ))}
      {note !== undefined && <span>{note}</span>}
    </nav>
  );
}

/** Copies the address, with the tray in it where the address does not carry it yet. */
export function CopyLink() {
  const { edits } = useTray();
  const address = () => {
    const url = new URL(window.location.href);
    if (edits.length > 0) url.searchParams.set("edits", formatEdits(edits));
    return url.origin + url.pathname + queryText(url.searchParams);
  };
  return (
    <CopyButton icon="link" className="wide" text={address}>
      Copy link
    </CopyButton>
  );
}

function NarrowRun() {
  const links = usePageLinks();
  return (
    <span className="m-run">
      <Link to={links.page("home")} aria-label="Home">
        <BrandMark />
      </Link>
      <RunChooser look="bare" />
    </span>
  );
}

export function PageBar({ crumbs, note, children, withSearch = true }: PageBarProps) {
  const search = useSearchDialog();
  const [only] = crumbs;
  return (
    <header className="bar">
      {crumbs.length === 1 && only?.label !== "Home" && <h1 className="sr">{only?.label}</h1>}
      <NarrowRun />
      <CrumbTrail crumbs={crumbs} {...(note !== undefined && { note })} />
      <div className="grow wide" />
      {withSearch && <SearchBox />}
      <CopyLink />
      {children}
      <Button variant="ghost" className="m-run" aria-label="Search" onClick={search.open}>
        <Icon name="search" />
      </Button>
    </header>
  );
}
