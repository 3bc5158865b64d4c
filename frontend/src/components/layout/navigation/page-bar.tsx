/** The bar of a page: the views of its place or breadcrumbs, the page's own buttons, Copy link and search. */

import { Fragment, type ReactNode } from "react";
import { Link, NavLink, useLocation } from "react-router";

import { SearchButton } from "@/components/layout/search/open-search";
import { Share } from "@/components/layout/share";
import { useCurrentRun } from "@/components/runs/current-run";
import { useTray } from "@/components/tray/tray-context";
import { CopyButton } from "@/components/ui/copy-button";
import { queryText } from "@/hooks/use-url-state";
import { lastPrompt } from "@/lib/browser/stores";
import { formatEdits } from "@/lib/edits/edits";

import { hasPrompt, type Place, placeOf, usePromptedLink } from "./pages";

interface Crumb {
  readonly label: string;
  readonly to?: string;
  /** Router state passed along with the link, outside the URL. */
  readonly state?: unknown;
}

interface PageBarProps {
  /** From the section to the page itself. */
  readonly crumbs: readonly Crumb[];
  readonly children?: ReactNode;
}

/** The views of the page's place. */
function Views({ place }: { readonly place: Place }) {
  const linkTo = usePromptedLink();
  return (
    <nav className="views" aria-label={`${place.name}, views`}>
      {place.views.map(({ page, name }) => (
        <NavLink key={page} className="row" to={linkTo(page)}>
          {name}
        </NavLink>
      ))}
    </nav>
  );
}

function CrumbTrail({ crumbs }: Pick<PageBarProps, "crumbs">) {
  return (
    <nav className="crumb" aria-label="Breadcrumbs">
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
    </nav>
  );
}

/** An address that only this machine can open. */
const isOnThisMachine = /^(localhost|127\.|\[::1\])/.test(window.location.hostname);

/** Copies the URL, including the tray's edits. */
function CopyLink() {
  const { edits } = useTray();
  const linkUrl = () => {
    const url = new URL(window.location.href);
    // What was typed and not yet submitted is part of the link.
    const prompt = lastPrompt();
    if (prompt !== "" && hasPrompt(url.pathname.slice(1)) && !url.searchParams.has("turns"))
      url.searchParams.set("prompt", prompt);
    if (edits.length > 0) url.searchParams.set("edits", formatEdits(edits));
    return url.origin + url.pathname + queryText(url.searchParams) + url.hash;
  };
  return (
    <CopyButton
      icon="link"
      className="wide"
      text={linkUrl}
      {...(isOnThisMachine && { confirmation: "Copied; opens only on this machine" })}
    >
      Copy link
    </CopyButton>
  );
}

/** Warns on every page that the experts of the current run explain little. */
function RoutingWarning() {
  const { summary } = useCurrentRun();
  if (summary?.routing_warning == null) return null;
  return (
    <p className="routing-warning" role="note">
      {summary.routing_warning}
    </p>
  );
}

export function PageBar({ crumbs, children }: PageBarProps) {
  const { pathname } = useLocation();
  const place = placeOf(pathname);
  const [firstCrumb] = crumbs;
  const hasViews = place !== null && place.views.length > 1 && crumbs.length <= 1;
  return (
    <>
      {crumbs.length === 1 && firstCrumb?.label !== "Home" && <h1 className="sr">{firstCrumb?.label}</h1>}
      <header className="row bar" data-page={firstCrumb?.label}>
        {hasViews ? <Views place={place} /> : <CrumbTrail crumbs={crumbs} />}
        <div className="grow" />
        {/* What a page adds is left of what all pages have at the same places. */}
        {children}
        <Share />
        <CopyLink />
        <SearchButton />
      </header>
      <RoutingWarning />
    </>
  );
}
