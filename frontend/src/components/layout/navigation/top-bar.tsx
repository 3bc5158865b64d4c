/** The bar on top of every page: places, run and help. On narrow screens the places are tabs at the bottom. */

import { type KeyboardEvent, useContext, useState, useSyncExternalStore } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";
import { flushSync } from "react-dom";
import { Link, useLocation } from "react-router";

import { OpenSearch } from "@/components/layout/search/open-search";
import { useTourUrl } from "@/components/layout/tour";
import { useCurrentRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { runSummaryLine } from "@/components/runs/run-labels";
import { Button, TriggerButton } from "@/components/ui/button";
import { BrandMark, Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { togglePresentation } from "@/lib/browser/presentation";
import { keyCap } from "@/lib/browser/shortcuts";
import { chooseTheme, currentTheme, subscribeTheme } from "@/lib/browser/stores";

import { placeOf, PLACES, usePromptedLink } from "./pages";

const importRunSelect = () => import("./run-select");
type RunSelect = Awaited<ReturnType<typeof importRunSelect>>["default"];

const missingLine = (numRuns: number) => (numRuns === 0 ? "create one with mxd train" : "not found, choose another");

/** Selector of the current run: a button until it is pressed, which loads the list of runs. */
function RunChooser() {
  const { name, summary, runs } = useCurrentRun();
  const [loaded, setLoaded] = useState<{ readonly RunSelect: RunSelect } | null>(null);
  const [isOpen, setOpen] = useState(false);
  const preload = () => void importRunSelect().catch(() => undefined);
  const open = () => {
    importRunSelect().then(
      (module) => {
        // The new button takes the focus before the list opens, so that it gets it back.
        flushSync(() => setLoaded({ RunSelect: module.default }));
        setOpen(true);
      },
      () => undefined,
    );
  };
  const openOnArrow = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") open();
  };
  const content = (
    <>
      <b className="block cut">{name ?? "No runs yet"}</b>
      <span className="line block cut">{summary === null ? missingLine(runs.length) : runSummaryLine(summary)}</span>
    </>
  );
  const icon = <Icon name="chevronDown" />;
  if (loaded !== null) {
    return <loaded.RunSelect {...{ icon, isOpen, onOpenChange: setOpen }}>{content}</loaded.RunSelect>;
  }
  return (
    <div className="run-select">
      <button
        type="button"
        className="runpick"
        aria-haspopup="listbox"
        aria-expanded={false}
        disabled={runs.length === 0}
        onPointerEnter={preload}
        onFocus={preload}
        onClick={open}
        onKeyDown={openOnArrow}
      >
        <span>{content}</span>
        {icon}
        <span className="sr">Run</span>
      </button>
    </div>
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

function Places() {
  const linkTo = usePromptedLink();
  const { pathname } = useLocation();
  const current = placeOf(pathname);
  return (
    <nav className="places" aria-label="Places">
      {PLACES.map((place) => (
        <Link
          key={place.name}
          className="row"
          to={linkTo(place.views[0].page)}
          aria-current={place === current ? (place.views.length > 1 ? "true" : "page") : undefined}
        >
          <Icon name={place.icon} />
          {place.name}
        </Link>
      ))}
    </nav>
  );
}

/** Tour, documentation, glossary, shortcuts and theme. */
function Help({ onShortcuts }: { readonly onShortcuts: () => void }) {
  const [isOpen, setOpen] = useState(false);
  const tourUrl = useTourUrl();
  const links = usePageLinks();
  const entries = [
    ["play", "Tour in six steps", tourUrl(1)],
    ["note", "Tutorial", "/documentation/tutorial.html"],
    ["list", "Documentation", "/documentation/index.html"],
    ["book", "Glossary", links.page("glossary")],
    ["code", "HTTP API", "/docs"],
  ] as const;
  return (
    <DialogTrigger isOpen={isOpen} onOpenChange={setOpen}>
      <TriggerButton className="btn ghost icon" aria-label="Help and theme">
        <Icon name="help" />
      </TriggerButton>
      <Popover className="popover help-menu" placement="bottom end">
        <Dialog aria-label="Help and theme">
          {entries.map(([icon, name, to]) => (
            <Link
              key={to}
              className="row"
              to={to}
              reloadDocument={to.startsWith("/doc")}
              onClick={() => setOpen(false)}
            >
              <Icon name={icon} />
              {name}
            </Link>
          ))}
          <button
            type="button"
            className="row"
            onClick={() => {
              setOpen(false);
              onShortcuts();
            }}
          >
            <Icon name="keyboard" />
            Keyboard shortcuts<kbd aria-hidden="true">{keyCap("help")}</kbd>
          </button>
          <h2>Theme</h2>
          <ThemeChoice />
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}

export function TopBar({ onShortcuts }: { readonly onShortcuts: () => void }) {
  const links = usePageLinks();
  const onSearch = useContext(OpenSearch);
  return (
    <header className="row top">
      <Link className="row brand" to={links.page("home")} aria-label="MxD Explorer, home">
        <BrandMark />
        <span>MxD Explorer</span>
      </Link>
      <Places />
      <div className="grow" />
      <RunChooser />
      <Button variant="ghost" className="narrow" icon="search" aria-label="Search" onClick={onSearch} />
      <Button
        variant="ghost"
        className="present"
        icon="present"
        aria-label="Presentation"
        title={`Presentation (${keyCap("present")})`}
        onClick={togglePresentation}
      />
      <Help onShortcuts={onShortcuts} />
    </header>
  );
}
