/** What surrounds every page. */

import { type ReactNode, useState } from "react";
import { useNavigate } from "react-router";

import { usePageLinks } from "../links";
import { OverlayProvider, Overlays } from "../overlays";
import { useShortcut } from "../shortcuts";
import { TrayBar } from "../tray/tray-bar";
import { Rail, Tabs } from "./rail";
import { SearchDialogProvider } from "./search-dialog";
import { ShortcutsDialog } from "./shortcuts-dialog";
import { StatusLine } from "./status-line";

export function AppShell({ children }: { readonly children: ReactNode }) {
  const [help, setHelp] = useState(false);
  const navigate = useNavigate();
  const links = usePageLinks();
  useShortcut("help", () => setHelp(true));
  useShortcut("steer", () => void navigate(links.page("steering")));
  return (
    <OverlayProvider>
      <SearchDialogProvider>
        <a className="skip" href="#main">
          Skip to the page
        </a>
        <div className="app">
          <Rail onHelp={() => setHelp(true)} />
          <main id="main" tabIndex={-1}>
            {children}
            <Overlays />
          </main>
        </div>
        <div className="dock">
          <StatusLine />
          <TrayBar />
        </div>
        <Tabs />
        <ShortcutsDialog isOpen={help} onOpenChange={setHelp} />
      </SearchDialogProvider>
    </OverlayProvider>
  );
}
