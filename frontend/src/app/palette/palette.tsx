/** The command palette: pages, experts, runs, sessions and `steer 46 +2`, by keyboard. */

import "./palette.css";

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Fragment, type KeyboardEvent, useId, useState } from "react";
import { Dialog, Modal, ModalOverlay } from "react-aria-components";
import { useLocation, useNavigate } from "react-router";

import { searchQuery, sessionsQuery } from "@/api/queries";
import { usePromptedLink } from "@/components/layout/navigation/use-prompted-link";
import { firstHitPerExpert } from "@/components/layout/search/first-hits";
import { useCurrentRun } from "@/components/runs/current-run";
import { sessionUrl, usePageLinks } from "@/components/runs/page-links";
import { runSummaryLine } from "@/components/runs/run-labels";
import { urlForRun } from "@/components/runs/url-for-run";
import { useTray } from "@/components/tray/tray-context";
import { useDebouncedValue } from "@/hooks/use-debounced-value";
import { lastPrompt } from "@/lib/browser/last-prompt";
import { describeEdit, formatEdits } from "@/lib/edits/edits";
import { visibleText } from "@/lib/text/token-text";

import { type Command, matches, pageCommands, steerCommand } from "./commands";

const MAX_EXPERTS = 8;
const MAX_OTHERS = 5;

function useCommands(text: string): readonly Command[] {
  const { name: current, summary, runs } = useCurrentRun();
  const links = usePageLinks();
  const linkTo = usePromptedLink();
  const location = useLocation();
  const { edits } = useTray();
  const typed = text.trim();
  const searched = useDebouncedValue(typed);
  const { data: found } = useQuery(searchQuery(current ?? "", current === null ? "" : searched, MAX_EXPERTS));
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
  const experts = searched === "" || edit !== null ? [] : firstHitPerExpert(found ?? []);
  const sessions = (saved?.sessions ?? []).filter(({ name }) => matches(name, typed));
  const otherRuns = runs.filter((run) => run.name !== current && matches(`run ${run.name}`, typed));
  return [
    ...steer,
    ...experts.map(({ expert, label, automatic, token }): Command => ({
      key: `expert ${expert}`,
      group: "Experts",
      name: `${expert} ${label ?? automatic?.label ?? ""}`,
      note: token === null ? "" : `fires on ${visibleText(token)}`,
      url: links.expert(expert),
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

interface PaletteProps {
  readonly isOpen: boolean;
  readonly onOpenChange: (open: boolean) => void;
}

export default function Palette({ isOpen, onOpenChange }: PaletteProps) {
  return (
    <ModalOverlay className="overlay" isOpen={isOpen} onOpenChange={onOpenChange} isDismissable>
      <Modal className="modal at-top palette">
        <Dialog aria-label="Command palette">
          <PaletteBody onDone={() => onOpenChange(false)} />
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
