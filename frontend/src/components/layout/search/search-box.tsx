/** The search box, and its dialog on narrow screens, where the top bar has no room for it. */

import { type KeyboardEvent, useRef, useState } from "react";
import { Dialog } from "react-aria-components";
import { flushSync } from "react-dom";
import { useNavigate } from "react-router";

import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { Icon } from "@/components/ui/icon";
import { type DialogState, Overlay } from "@/components/ui/overlay-portal";
import { useShortcut } from "@/hooks/use-shortcut";
import { keyCap } from "@/lib/browser/shortcuts";

import { isPageRow, SEARCH_LABEL, typedExpert } from "./search-results";

const importComboBox = () => import("./search-combo-box");
type ComboBox = Awaited<ReturnType<typeof importComboBox>>["SearchComboBox"];

interface SearchBoxProps {
  readonly onChosen?: () => void;
  /** In a dialog it takes the focus on opening, and the shortcut stays with the page's own box. */
  readonly inDialog?: boolean;
}

/** The list of hits with its own input, once loaded, and whether the plain input had the focus then. */
function useComboBox(isFocused: () => boolean) {
  const [loaded, setLoaded] = useState<{ readonly ComboBox: ComboBox; readonly hasFocus: boolean } | null>(null);
  const [isReady, setReady] = useState(false);
  const load = () => {
    // If it cannot be loaded, Enter still opens the Search page.
    importComboBox().then(
      ({ SearchComboBox }) => {
        flushSync(() => setLoaded({ ComboBox: SearchComboBox, hasFocus: isFocused() }));
        setReady(true);
      },
      () => undefined,
    );
  };
  return { loaded, isReady, load };
}

export function SearchBox({ onChosen, inDialog = false }: SearchBoxProps) {
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const navigate = useNavigate();
  const links = usePageLinks();
  const { summary } = useCurrentRun();
  const { loaded, isReady, load } = useComboBox(() => document.activeElement === input.current);
  useShortcut("search", () => input.current?.focus(), !inDialog);
  const leaveTo = (url: string) => {
    setText("");
    onChosen?.();
    void navigate(url);
  };
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>) => {
    // If a row is selected with the arrow keys, Enter opens that instead.
    if (event.key !== "Enter" || text.trim() === "" || event.currentTarget.hasAttribute("aria-activedescendant"))
      return;
    const expert = typedExpert(text, summary?.num_experts ?? 0);
    leaveTo(expert === null ? links.page("search", { text }) : links.expert(expert));
  };
  const icon = <Icon name="search" />;
  const keyHint = !inDialog && <kbd aria-hidden="true">{keyCap("search")}</kbd>;
  if (loaded !== null) {
    const { ComboBox, hasFocus } = loaded;
    const onChoose = (row: string) => {
      const at = row.lastIndexOf("/");
      const expert = () => pageLinks(row.slice(0, at)).expert(Number(row.slice(at + 1)));
      leaveTo(isPageRow(row) ? links.page("search", { kind: row, text }) : expert());
    };
    // What was typed before it was ready then counts as a change, which opens the list.
    const shown = isReady ? text : "";
    return <ComboBox {...{ text: shown, onText: setText, onChoose, onKeyDown, input, hasFocus, icon, keyHint }} />;
  }
  return (
    <div className="search-box">
      <div className="row search">
        {icon}
        <input
          ref={input}
          type="text"
          // eslint-disable-next-line jsx-a11y/role-has-required-aria-props -- there is no list to control yet
          role="combobox"
          aria-expanded={false}
          aria-label={SEARCH_LABEL}
          autoComplete="off"
          placeholder={SEARCH_LABEL}
          // eslint-disable-next-line jsx-a11y/no-autofocus -- the dialog is opened in order to type
          autoFocus={inDialog}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onFocus={load}
          onKeyDown={onKeyDown}
        />
        {keyHint}
      </div>
    </div>
  );
}

export const SearchDialog = ({ isOpen, onOpenChange }: DialogState) => (
  <Overlay className="at-top" isOpen={isOpen} onOpenChange={onOpenChange}>
    <Dialog aria-label="Search">
      <SearchBox inDialog onChosen={() => onOpenChange(false)} />
    </Dialog>
  </Overlay>
);
