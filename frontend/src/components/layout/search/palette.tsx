/** The search of every page: experts by words, pages, runs and sessions by name, and steering by a command. */

import "./palette.css";

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Fragment, type KeyboardEvent, type ReactNode, useId, useState } from "react";
import { Dialog } from "react-aria-components";
import { useLocation, useNavigate } from "react-router";

import { sessionsQuery } from "@/api/queries";
import type { SearchHit } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { PLACES, usePromptedLink } from "@/components/layout/navigation/pages";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks, type PageName, sessionUrl, urlForRun, usePageLinks } from "@/components/runs/page-links";
import { runSummaryLine } from "@/components/runs/run-labels";
import { useTray } from "@/components/tray/tray-context";
import { type DialogState, Overlay } from "@/components/ui/overlay-portal";
import { SHORTCUTS } from "@/lib/browser/shortcuts";
import { lastPrompt } from "@/lib/browser/stores";
import { describeEdit, type Edit, formatEdits, MAX_STRENGTH, newEdit } from "@/lib/edits/edits";

import { MatchReason } from "./matched-text";
import { noMatchText, typedExpert, useLayerHits } from "./search-results";

export interface Command {
  readonly key: string;
  /** Heading under which it is listed. */
  readonly group: "Steer" | "Pages" | "Experts" | "Sessions" | "Runs";
  readonly name: ReactNode;
  readonly note: ReactNode;
  readonly url: string;
}

type PageLinks = ReturnType<typeof usePageLinks>;

/** `steer 46 +2`, `steer 46 -1.5` or `steer 46`: the edit of an expert; null for other text. */
export function steerCommand(text: string, numExperts: number): Edit | null {
  const match = /^steer\s+#?(\d{1,9})(?:\s+([+−-]?\d+(?:\.\d+)?))?$/i.exec(text.trim());
  const expert = Number(match?.[1]);
  if (match === null || expert >= numExperts) return null;
  const edit = newEdit(expert);
  const strength = match[2] === undefined ? edit.strength : Number(match[2].replace("−", "-"));
  return { ...edit, strength: Math.max(-MAX_STRENGTH, Math.min(MAX_STRENGTH, strength)) };
}

/** Whether the name contains the text, or every typed word begins a word of the name. */
export function matches(name: string, text: string): boolean {
  const [lowName, lowText] = [name.toLowerCase(), text.toLowerCase()];
  const words = lowName.split(/[^\p{L}\p{N}]+/u);
  return (
    lowName.includes(lowText) || lowText.split(/\s+/).every((typed) => words.some((word) => word.startsWith(typed)))
  );
}

type PageCommand = Command & { readonly name: string };

export function pageCommands(text: string, linkTo: (page: PageName) => string): readonly PageCommand[] {
  const views = PLACES.flatMap((place) =>
    place.views.map(({ page, name }) => ({ page, name: name === place.name ? name : `${place.name}: ${name}` })),
  );
  const all = [{ page: "home" as const, name: "Home" }, ...views, { page: "glossary" as const, name: "Glossary" }];
  return all
    .filter(({ name }) => matches(name, text))
    .map(({ page, name }) => ({ key: page, group: "Pages", name, note: "", url: linkTo(page) }));
}

function steerTo(edit: Edit, links: PageLinks): Command {
  const prompt = lastPrompt();
  return {
    key: "steer",
    group: "Steer",
    name: `Expert ${edit.expert} ${describeEdit(edit)}`,
    note: prompt,
    url: links.page("steering", { edits: formatEdits([edit]), ...(prompt !== "" && { prompt }) }),
  };
}

const expertCommand = (hit: SearchHit): Command => ({
  key: `${hit.run}/${hit.expert}`,
  group: "Experts",
  name: (
    <>
      <span className="mono id">{hit.expert}</span>{" "}
      <ExpertLabel label={hit.label} automatic={hit.automatic} topTokens={hit.top_tokens} />
    </>
  ),
  note: (
    <>
      layer {hit.layer}
      {(hit.token !== null || hit.example !== null) && (
        <>
          , <MatchReason hit={hit} />
        </>
      )}
    </>
  ),
  url: pageLinks(hit.run).expert(hit.expert),
});

/** The Search page with all matches, or with the text run through the model if nothing matches. */
const searchCommand = (text: string, isFound: boolean, isWaiting: boolean, links: PageLinks): Command => ({
  key: "search",
  group: "Experts",
  name: isFound
    ? `All matches of “${text}” and of related words`
    : `Run “${text}” through the model to find experts that fire on it`,
  note: isWaiting ? "searching related words …" : !isFound && noMatchText(text),
  url: links.page("search", isFound ? { text } : { kind: "passage", text }),
});

const MAX_EXPERTS = 8;
const MAX_OTHERS = 5;

/** Everything that can be opened; Enter opens the first. */
function useCommands(text: string): readonly Command[] {
  const { name: current, summary, runs } = useCurrentRun();
  const links = usePageLinks();
  const linkTo = usePromptedLink();
  const location = useLocation();
  const { edits } = useTray();
  const typed = text.trim();
  const { hits, debounced, query, isWaiting } = useLayerHits(text, false);
  const isSearching = debounced !== typed || query.isPlaceholderData || query.isPending;
  const { data: saved } = useQuery({
    ...sessionsQuery(current ?? ""),
    enabled: current !== null,
    placeholderData: keepPreviousData,
  });
  const edit = steerCommand(typed, summary?.num_experts ?? 0);
  const found = hits.slice(0, MAX_EXPERTS).map(expertCommand);
  const inSearch = searchCommand(typed, hits.length > 0 || isWaiting, isWaiting, links);
  const number = typedExpert(typed, summary?.num_experts ?? 0);
  // Until the experts of this text are known, Enter opens its number or all matches, not an expert of an earlier text;
  // then an expert that the text names, or all matches: those of related words are found there.
  const early = number === null ? inSearch : { ...inSearch, name: `Expert ${number}`, url: links.expert(number) };
  const isNamed = !isSearching && (hits[0]?.is_named === true || hits[0]?.matched === "id");
  const experts = isNamed ? [...found, inSearch] : [isSearching ? early : inSearch, ...found];
  const pages = pageCommands(typed, linkTo).slice(0, typed === "" ? undefined : MAX_OTHERS);
  const isExact = ({ name }: PageCommand) => name.toLowerCase().split(": ").includes(typed.toLowerCase());
  const sessions = (saved?.sessions ?? []).filter(({ name }) => matches(name, typed));
  const otherRuns = runs.filter((run) => run.name !== current && matches(`run ${run.name}`, typed));
  return [
    ...(edit === null ? [] : [steerTo(edit, links)]),
    ...pages.filter(isExact),
    ...(typed === "" || edit !== null ? [] : experts),
    ...pages.filter((page) => !isExact(page)),
    ...sessions.slice(0, MAX_OTHERS).map(({ id, name, prompt: text }): Command => ({
      key: `session ${id}`,
      group: "Sessions",
      name,
      note: text,
      url: sessionUrl(id),
    })),
    ...otherRuns.slice(0, MAX_OTHERS).map((run): Command => ({
      key: `run ${run.name}`,
      group: "Runs",
      name: run.name,
      note: runSummaryLine(run),
      url: urlForRun(location, current, run.name, formatEdits(edits)),
    })),
  ];
}

interface CommandListProps {
  readonly id: string;
  readonly commands: readonly Command[];
  /** Index of the chosen one. */
  readonly at: number;
  readonly onChoose: (at: number) => void;
  readonly onOpen: (command: Command) => void;
}

function CommandList({ id, commands, at, onChoose, onOpen }: CommandListProps) {
  return (
    <div className="palette-list" id={id} role="listbox" aria-label="Found">
      {commands.map((command, i) => (
        <Fragment key={command.key}>
          {command.group !== commands[i - 1]?.group && <p role="presentation">{command.group}</p>}
          {/* eslint-disable-next-line jsx-a11y/click-events-have-key-events -- the input has the keys */}
          <div
            id={`${id}-${i}`}
            role="option"
            aria-selected={i === at}
            tabIndex={-1}
            ref={i === at ? (option) => option?.scrollIntoView({ block: "nearest" }) : undefined}
            onPointerMove={() => onChoose(i)}
            onClick={() => onOpen(command)}
          >
            <span className="cut">{command.name}</span>
            <span className="dim cut">{command.note}</span>
          </div>
        </Fragment>
      ))}
      {commands.length === 0 && <p role="presentation">No match</p>}
    </div>
  );
}

function PaletteBody({ onDone }: { readonly onDone: () => void }) {
  const [text, setText] = useState("");
  /** Key of the chosen command, which stays chosen while others are found. */
  const [chosen, setChosen] = useState<string | null>(null);
  const commands = useCommands(text);
  const navigate = useNavigate();
  const id = useId();
  const at = Math.max(
    0,
    commands.findIndex(({ key }) => key === chosen),
  );
  const open = (url: string | undefined) => {
    if (url === undefined) return;
    onDone();
    void navigate(url);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter") open(commands[at]?.url);
    else if (step !== undefined)
      setChosen(commands[(at + step + commands.length) % Math.max(1, commands.length)]?.key ?? null);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <input
        role="combobox"
        aria-label={SHORTCUTS.search.what}
        aria-expanded
        aria-controls={id}
        aria-activedescendant={commands.length === 0 ? undefined : `${id}-${at}`}
        autoComplete="off"
        spellCheck={false}
        placeholder="Words, an expert’s number, a page, a run, a session, or “steer 46 +2”"
        // eslint-disable-next-line jsx-a11y/no-autofocus -- the palette is opened in order to type
        autoFocus
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(null);
        }}
        onKeyDown={onKeyDown}
      />
      <CommandList
        {...{ id, commands, at }}
        onChoose={(i) => setChosen(commands[i]?.key ?? null)}
        onOpen={({ url }) => open(url)}
      />
    </>
  );
}

export function Palette({ isOpen, onOpenChange }: DialogState) {
  return (
    <Overlay className="at-top palette" isOpen={isOpen} onOpenChange={onOpenChange}>
      <Dialog aria-label="Search">
        <PaletteBody onDone={() => onOpenChange(false)} />
      </Dialog>
    </Overlay>
  );
}
