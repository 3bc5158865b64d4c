/** The command palette: pages, experts, runs and sessions by name, and steering by a command. */

import "./palette.css";

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Fragment, type KeyboardEvent, useId, useState } from "react";
import { Dialog } from "react-aria-components";
import { useLocation, useNavigate } from "react-router";

import { sessionsQuery } from "@/api/queries";
import { namingLabel } from "@/components/experts/expert-link";
import { PLACES, usePromptedLink } from "@/components/layout/navigation/pages";
import { groupByLabel, useLayerHits } from "@/components/layout/search/search-results";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks, type PageName, sessionUrl, urlForRun, usePageLinks } from "@/components/runs/page-links";
import { runSummaryLine } from "@/components/runs/run-labels";
import { useTray } from "@/components/tray/tray-context";
import { type DialogState, Overlay } from "@/components/ui/overlay-portal";
import { lastPrompt } from "@/lib/browser/stores";
import { describeEdit, type Edit, formatEdits, MAX_STRENGTH, newEdit } from "@/lib/edits/edits";
import { visibleText } from "@/lib/text/token-text";

export interface Command {
  readonly key: string;
  /** Heading under which it is listed. */
  readonly group: "Steer" | "Pages" | "Experts" | "Sessions" | "Runs";
  readonly name: string;
  readonly note: string;
  readonly url: string;
}

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

export function pageCommands(text: string, linkTo: (page: PageName) => string): readonly Command[] {
  const views = PLACES.flatMap((place) =>
    place.views.map(({ page, name }) => ({ page, name: name === place.name ? name : `${place.name}: ${name}` })),
  );
  const all = [{ page: "home" as const, name: "Home" }, ...views, { page: "glossary" as const, name: "Glossary" }];
  return all
    .filter(({ name }) => matches(name, text))
    .map(({ page, name }) => ({ key: page, group: "Pages", name, note: "", url: linkTo(page) }));
}

const MAX_EXPERTS = 8;
const MAX_OTHERS = 5;

function useCommands(text: string): readonly Command[] {
  const { name: current, summary, runs } = useCurrentRun();
  const links = usePageLinks();
  const linkTo = usePromptedLink();
  const location = useLocation();
  const { edits } = useTray();
  const typed = text.trim();
  const { hits, debounced: searched } = useLayerHits(text);
  const { data: saved } = useQuery({
    ...sessionsQuery(current ?? ""),
    enabled: current !== null,
    placeholderData: keepPreviousData,
  });
  const edit = steerCommand(typed, summary?.num_experts ?? 0);
  const prompt = lastPrompt();
  const steer: readonly Command[] =
    edit === null
      ? []
      : [
          {
            key: "steer",
            group: "Steer",
            name: `Expert ${edit.expert} ${describeEdit(edit)}`,
            note: prompt,
            url: links.page("steering", { edits: formatEdits([edit]), ...(prompt !== "" && { prompt }) }),
          },
        ];
  const experts = searched === "" || edit !== null ? [] : groupByLabel(hits).slice(0, MAX_EXPERTS);
  const sessions = (saved?.sessions ?? []).filter(({ name }) => matches(name, typed));
  const otherRuns = runs.filter((run) => run.name !== current && matches(`run ${run.name}`, typed));
  return [
    ...steer,
    ...experts.map(({ hit: { run, layer, expert, label, automatic, token } }): Command => ({
      key: `${run}/${expert}`,
      group: "Experts",
      name: `${expert} ${label ?? namingLabel(automatic)?.label ?? ""}`,
      note: `layer ${layer}${token === null ? "" : `, fires on ${visibleText(token)}`}`,
      url: pageLinks(run).expert(expert),
    })),
    ...pageCommands(typed, linkTo).slice(0, typed === "" ? undefined : MAX_OTHERS),
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
    <div className="palette-list" id={id} role="listbox" aria-label="Commands">
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
            <span>{command.name}</span>
            <span className="dim">{command.note}</span>
          </div>
        </Fragment>
      ))}
      {commands.length === 0 && <p role="presentation">No match</p>}
    </div>
  );
}

function PaletteBody({ onDone }: { readonly onDone: () => void }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const commands = useCommands(text);
  const navigate = useNavigate();
  const id = useId();
  const at = Math.min(chosen, commands.length - 1);
  const open = (command: Command | undefined) => {
    if (command === undefined) return;
    onDone();
    void navigate(command.url);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter") open(commands[at]);
    else if (step !== undefined) setChosen((at + step + commands.length) % Math.max(1, commands.length));
    else return;
    event.preventDefault();
  };
  return (
    <>
      <input
        role="combobox"
        aria-label="Command"
        aria-expanded
        aria-controls={id}
        aria-activedescendant={commands.length === 0 ? undefined : `${id}-${at}`}
        autoComplete="off"
        spellCheck={false}
        placeholder="A page, an expert, a run, a session, or “steer 46 +2”"
        // eslint-disable-next-line jsx-a11y/no-autofocus -- the palette is opened in order to type
        autoFocus
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={onKeyDown}
      />
      <CommandList id={id} commands={commands} at={at} onChoose={setChosen} onOpen={open} />
    </>
  );
}

export default function Palette({ isOpen, onOpenChange }: DialogState) {
  return (
    <Overlay className="at-top palette" isOpen={isOpen} onOpenChange={onOpenChange}>
      <Dialog aria-label="Command palette">
        <PaletteBody onDone={() => onOpenChange(false)} />
      </Dialog>
    </Overlay>
  );
}
