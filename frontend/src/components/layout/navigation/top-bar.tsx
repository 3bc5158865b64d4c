/** The bar on top of every page: places, run and help. On narrow screens the places are tabs at the bottom. */

import { useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";
import { Link, useLocation } from "react-router";

import { useSearchDialog } from "@/components/layout/search/search-dialog";
import { useTourUrl } from "@/components/layout/tour";
import { usePageLinks } from "@/components/runs/page-links";
import { Button, TriggerButton } from "@/components/ui/button";
import { BrandMark, Icon } from "@/components/ui/icon";
import { togglePresentation } from "@/lib/browser/presentation";
import { keyCap } from "@/lib/browser/shortcuts";

import { placeOf, PLACES } from "./pages";
import { RunChooser } from "./run-chooser";
import { ThemeChoice } from "./theme-choice";
import { usePromptedLink } from "./use-prompted-link";

function Places() {
  const linkTo = usePromptedLink();
  const { pathname } = useLocation();
  const current = placeOf(pathname);
  return (
    <nav className="places" aria-label="Places">
      {PLACES.map((place) => (
        <Link
          key={place.name}
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
  return (
    <DialogTrigger isOpen={isOpen} onOpenChange={setOpen}>
      <TriggerButton className="btn ghost icon" aria-label="Help and theme">
        <Icon name="help" />
      </TriggerButton>
      <Popover className="popover help-menu" placement="bottom end">
        <Dialog aria-label="Help and theme">
          <Link to={tourUrl(1)} onClick={() => setOpen(false)}>
            <Icon name="play" />
            Tour in six steps
          </Link>
          <a href="/documentation/tutorial.html">
            <Icon name="note" />
            Tutorial
          </a>
          <a href="/documentation/index.html">
            <Icon name="list" />
            Documentation
          </a>
          <Link to={links.page("glossary")} onClick={() => setOpen(false)}>
            <Icon name="book" />
            Glossary
          </Link>
          <a href="/docs">
            <Icon name="code" />
            HTTP API
          </a>
          <button
            type="button"
            onClick={() => {
              setOpen(false);
              onShortcuts();
            }}
          >
            <Icon name="keyboard" />
            Keyboard shortcuts<kbd aria-hidden="true">{keyCap("help")}</kbd>
          </button>
          <ThemeChoice />
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}

export function TopBar({ onShortcuts }: { readonly onShortcuts: () => void }) {
  const links = usePageLinks();
  const search = useSearchDialog();
  return (
    <header className="top">
      <Link className="brand" to={links.page("home")} aria-label="MxD Explorer, home">
        <BrandMark />
        <span>MxD Explorer</span>
      </Link>
      <Places />
      <div className="grow" />
      <RunChooser />
      <Button variant="ghost" className="narrow" aria-label="Search" onClick={search.open}>
        <Icon name="search" />
      </Button>
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
