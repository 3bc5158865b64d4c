/** Sidebar with run selector, page links and theme. On narrow screens the pages are tabs at the bottom. */

import { useSyncExternalStore } from "react";
import { NavLink } from "react-router";

import { type PageName, usePageLinks } from "@/components/runs/page-links";
import { BrandMark, Icon, type IconName } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { keyCap } from "@/lib/browser/shortcuts";
import { chooseTheme, currentTheme, subscribeTheme } from "@/lib/browser/theme";

import { RunChooser } from "./run-chooser";

interface PageEntry {
  readonly page: PageName;
  readonly name: string;
  readonly icon: IconName;
}

const PAGES: readonly PageEntry[] = [
  { page: "home", name: "Home", icon: "home" },
  { page: "runs", name: "Runs", icon: "runs" },
  { page: "experts", name: "Experts", icon: "experts" },
  { page: "search", name: "Search", icon: "search" },
  { page: "lists", name: "Lists", icon: "list" },
  { page: "routing", name: "Routing", icon: "routing" },
  { page: "circuits", name: "Circuits", icon: "circuits" },
  { page: "privacy", name: "Privacy", icon: "privacy" },
  { page: "steering", name: "Steering", icon: "steering" },
  { page: "frontier", name: "Frontier", icon: "frontier" },
  { page: "faithfulness", name: "Faithfulness", icon: "faithfulness" },
  { page: "health", name: "Expert health", icon: "health" },
  { page: "probing", name: "Probing", icon: "probing" },
];

function PageLink({ entry }: { readonly entry: PageEntry }) {
  const links = usePageLinks();
  return (
    <NavLink to={links.page(entry.page)} end={entry.page === "home"}>
      <Icon name={entry.icon} />
      {entry.name}
    </NavLink>
  );
}

function ThemeChoice() {
  const theme = useSyncExternalStore(subscribeTheme, currentTheme);
  return (
    <SegmentedControl
      label="Theme"
      className="fill"
      value={theme}
      onChange={chooseTheme}
      segments={[
        { value: "auto", label: "Auto" },
        { value: "light", label: <Icon name="sun" />, name: "Light" },
        { value: "dark", label: <Icon name="moon" />, name: "Dark" },
      ]}
    />
  );
}

export function Sidebar({ onHelp }: { readonly onHelp: () => void }) {
  const links = usePageLinks();
  return (
    <header className="sidebar">
      <NavLink className="brand" to={links.page("home")} aria-label="MxD Explorer, home">
        <BrandMark />
        MxD Explorer
      </NavLink>
      <RunChooser />
      <nav className="nav" aria-label="Pages">
        {PAGES.map((entry) => (
          <PageLink key={entry.page} entry={entry} />
        ))}
      </nav>
      <div className="sidebar-foot">
        <ThemeChoice />
        <button type="button" onClick={onHelp}>
          Keyboard shortcuts<kbd aria-hidden="true">{keyCap("help")}</kbd>
        </button>
      </div>
    </header>
  );
}

export function Tabs() {
  return (
    <nav className="tabs" aria-label="Pages">
      {PAGES.filter((entry) => entry.page !== "home" && entry.page !== "search").map((entry) => (
        <PageLink key={entry.page} entry={entry} />
      ))}
    </nav>
  );
}
