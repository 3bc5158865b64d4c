/** Sidebar with run selector, page links and theme. Narrow screens have tabs instead. */

import { NavLink } from "react-router";

import { useCurrentRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { BrandMark } from "@/components/ui/icon";
import { keyCap } from "@/lib/browser/shortcuts";

import { PageLink } from "./page-link";
import { GENERAL_PAGES, GLOSSARY_PAGE, pageGroups } from "./pages";
import { RunChooser } from "./run-chooser";
import { ThemeChoice } from "./theme-choice";

export function Sidebar({ onHelp }: { readonly onHelp: () => void }) {
  const links = usePageLinks();
  const { runs } = useCurrentRun();
  return (
    <header className="sidebar">
      <NavLink className="brand" to={links.page("home")} aria-label="MxD Explorer, home">
        <BrandMark />
        MxD Explorer
      </NavLink>
      <RunChooser />
      <nav className="nav" aria-label="Pages">
        {GENERAL_PAGES.map((entry) => (
          <PageLink key={entry.page} entry={entry} />
        ))}
        {pageGroups(runs).map((group) => (
          <div key={group.name} role="group" aria-labelledby={`nav-${group.name}`}>
            <span id={`nav-${group.name}`}>{group.name}</span>
            {group.pages.map((entry) => (
              <PageLink key={entry.page} entry={entry} />
            ))}
          </div>
        ))}
      </nav>
      <div className="sidebar-foot">
        <nav className="nav" aria-label="Help">
          <PageLink entry={GLOSSARY_PAGE} />
        </nav>
        <button type="button" onClick={onHelp}>
          Keyboard shortcuts<kbd aria-hidden="true">{keyCap("help")}</kbd>
        </button>
        <ThemeChoice />
      </div>
    </header>
  );
}
