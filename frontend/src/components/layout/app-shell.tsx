/** Layout shared by all pages. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useCallback, useState } from "react";
import { Dialog, Heading } from "react-aria-components";
import { useNavigate } from "react-router";

import { useSignOut } from "@/api/mutations";
import { accessQuery, healthQuery } from "@/api/queries";
import type { Health } from "@/api/types";
import { TopBar } from "@/components/layout/navigation/top-bar";
import { usePromptedLink, useRememberPrompt } from "./navigation/pages";
import { OpenSearch } from "@/components/layout/search/open-search";
import { Palette } from "@/components/layout/search/palette";
import { TipLayer } from "@/components/tokens/tip-layer";
import { useSharedTray } from "@/components/tray/tray-context";
import { Button } from "@/components/ui/button";
import { type DialogState, Overlay, OverlayContainer, OverlayProvider } from "@/components/ui/overlay-portal";
import { useControlKey, useShortcut } from "@/hooks/use-shortcut";
import { togglePresentation } from "@/lib/browser/presentation";
import { keyCap, type ShortcutId, SHORTCUTS } from "@/lib/browser/shortcuts";
import { formatBytes, formatCount } from "@/lib/text/format";

import { Tour } from "./tour";
import { TrayBar } from "./tray-bar";

function LoadedModels({ models }: { readonly models: Health["language_models"] }) {
  if (models.length === 0) return <span>No language model loaded yet; the first prompt loads it</span>;
  return (
    <span>
      <span className="dot" />
      {models.map((lm) => `${lm.name} loaded, ${lm.dtype} on ${lm.device}`).join("; ")}
    </span>
  );
}

function SignedInStatus() {
  const { data } = useQuery(accessQuery);
  const signOut = useSignOut();
  if (data === undefined || !data.tokens_required || data.role === null) return null;
  return (
    <span>
      {data.role === "read" ? "Signed in: read access" : "Signed in: read and write access"}{" "}
      <button type="button" className="link" onClick={() => signOut.mutate()}>
        Sign out
      </button>
    </span>
  );
}

/** Server status: version, loaded language models and size of the database. */
function StatusLine() {
  const { data, error } = useQuery(healthQuery);
  return (
    <footer className="row status">
      <span className="mk">MxD Explorer {data?.version}</span>
      <SignedInStatus />
      <span className="grow" />
      {error !== null && <span className="bad">The server does not respond</span>}
      {data !== undefined && error === null && (
        <>
          <LoadedModels models={data.language_models} />
          <span>
            Database {formatBytes(data.database_bytes)}, {formatCount(data.examples)} examples
          </span>
        </>
      )}
    </footer>
  );
}

const IDS = Object.keys(SHORTCUTS) as ShortcutId[];
const GROUPS = [...new Set(IDS.map((id) => SHORTCUTS[id].where))];

/** Keyboard shortcuts, grouped by page. */
function ShortcutsDialog({ isOpen, onOpenChange }: DialogState) {
  return (
    <Overlay isOpen={isOpen} onOpenChange={onOpenChange}>
      <Dialog className="shortcuts">
        <header className="row">
          <Heading slot="title">Keyboard shortcuts</Heading>
          <Button variant="ghost" icon="close" aria-label="Close" onClick={() => onOpenChange(false)} />
        </header>
        {GROUPS.map((where) => (
          <section key={where}>
            <h3>{where}</h3>
            <dl>
              {IDS.filter((id) => SHORTCUTS[id].where === where).map((id) => (
                <div key={id} className="row">
                  <dt>{SHORTCUTS[id].what}</dt>
                  <dd>
                    <kbd>{keyCap(id)}</kbd>
                  </dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        <p className="dim">
          Tour, tutorial and glossary are in the help menu at the top right. Ctrl K or ⌘ K opens the search, also while
          typing. “steer 46 +2” steers there. On tokens, the arrow keys move between tokens and Enter locks one. On
          sliders, the arrow keys move by one step, with Shift by ten; a double click resets to neutral.
        </p>
      </Dialog>
    </Overlay>
  );
}

export function AppShell({ children }: { readonly children: ReactNode }) {
  const [help, setHelp] = useState(false);
  const [search, setSearch] = useState(false);
  const openSearch = useCallback(() => setSearch(true), []);
  const navigate = useNavigate();
  const linkTo = usePromptedLink();
  useRememberPrompt();
  useSharedTray();
  useShortcut("search", openSearch);
  useControlKey("k", () => setSearch((open) => !open));
  useShortcut("help", () => setHelp(true));
  useShortcut("present", togglePresentation);
  useShortcut("steer", () => void navigate(linkTo("steering")));
  return (
    <OverlayProvider>
      <a className="skip" href="#main">
        Skip to content
      </a>
      <OpenSearch value={openSearch}>
        <TopBar onShortcuts={() => setHelp(true)} />
        <main id="main" tabIndex={-1}>
          {children}
          <Tour />
          <OverlayContainer />
        </main>
      </OpenSearch>
      <div className="dock">
        <StatusLine />
        <TrayBar />
      </div>
      <ShortcutsDialog isOpen={help} onOpenChange={setHelp} />
      <Palette isOpen={search} onOpenChange={setSearch} />
      <TipLayer />
    </OverlayProvider>
  );
}
