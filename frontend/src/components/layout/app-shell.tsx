/** Layout shared by all pages. */

import { type ReactNode, useState } from "react";
import { useNavigate } from "react-router";

import { OverlayProvider, OverlayContainer } from "@/components/ui/overlay-portal";
import { useShortcut } from "@/hooks/use-shortcut";
import { togglePresentation } from "@/lib/browser/presentation";

import { TopBar } from "./navigation/top-bar";
import { usePromptedLink, useRememberPrompt } from "./navigation/use-prompted-link";
import { SearchDialogProvider } from "./search/search-dialog";
import { ShortcutsDialog } from "./shortcuts-dialog";
import { StatusLine } from "./status-line";
import { Tour } from "./tour";
import { TrayBar } from "./tray-bar";

export function AppShell({ children }: { readonly children: ReactNode }) {
  const [help, setHelp] = useState(false);
  const navigate = useNavigate();
  const linkTo = usePromptedLink();
  useRememberPrompt();
  useShortcut("help", () => setHelp(true));
  useShortcut("present", togglePresentation);
  useShortcut("steer", () => void navigate(linkTo("steering")));
  return (
    <OverlayProvider>
      <SearchDialogProvider>
        <a className="skip" href="#main">
          Skip to content
        </a>
        <TopBar onShortcuts={() => setHelp(true)} />
        <main id="main" tabIndex={-1}>
          {children}
          <Tour />
          <OverlayContainer />
        </main>
        <div className="dock">
          <StatusLine />
          <TrayBar />
        </div>
        <ShortcutsDialog isOpen={help} onOpenChange={setHelp} />
      </SearchDialogProvider>
    </OverlayProvider>
  );
}
