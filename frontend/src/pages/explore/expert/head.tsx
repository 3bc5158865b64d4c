/** The expert's label, tags, note and actions. */

import "@/components/lists/lists.css";
import "./expert.css";

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ChangeEvent, type KeyboardEvent, type SubmitEvent, useEffect, useId, useRef, useState } from "react";
import { Link, useNavigate } from "react-router";

import { useSetLabel, useSetNote, useSetTag } from "@/api/mutations";
import { examplesQuery, expertQuery, listsQuery, topExamplesQuery, visitRandomExpert } from "@/api/queries";
import type { ExpertDetail } from "@/api/types";
import {
  automaticLabelScore,
  describeAutomaticLabel,
  labelShare,
  namingLabel,
  shownAutomatic,
  TokenName,
} from "@/components/experts/expert-link";
import { ListPopover } from "@/components/lists/add-to-list";
import { useCurrentRun } from "@/components/runs/current-run";
import { haveSameStart, pageLinks, usePageLinks } from "@/components/runs/page-links";
import { Described, Term } from "@/components/terms/term";
import { distinctWords, TokenChips } from "@/components/tokens/token-chip";
import { useTray } from "@/components/tray/tray-context";
import { ActionMenu } from "@/components/ui/action-menu";
import { Button, GhostButton, RemoveChip } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { Failure } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { formatFoundAgain, formatPlural, formatShare } from "@/lib/text/format";

import { describeSample, useWrites } from "./answers";
import { FILES, useDownload } from "./download";
import { EXAMPLES_PER_PAGE, weakerBins } from "./shown-examples";

interface TextEditorProps {
  readonly label: string;
  readonly initial: string;
  /** Whether there is a saved text, which a button removes. */
  readonly isSaved?: boolean;
  readonly maxLength: number;
  readonly lines: number;
  readonly saving: { readonly isPending: boolean; readonly error: unknown };
  readonly onSave: (text: string | null) => void;
  readonly onCancel: () => void;
}

export function TextEditor({ label, initial, isSaved = false, maxLength, lines, ...props }: TextEditorProps) {
  const { saving, onSave, onCancel } = props;
  const [text, setText] = useState(initial);
  const save = () => onSave(text.trim() === "" ? null : text.trim());
  const onKeyDown = (event: KeyboardEvent) => {
    const isSave = event.key === "Enter" && (lines === 1 || event.ctrlKey || event.metaKey);
    if (!isSave && event.key !== "Escape") return;
    event.preventDefault();
    if (isSave) save();
    else onCancel();
  };
  const fieldProps = {
    "aria-label": label,
    autoFocus: true,
    maxLength,
    value: text,
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => setText(event.target.value),
    onKeyDown,
  };
  return (
    <form
      className={lines === 1 ? "editor one-line" : "editor"}
      onSubmit={(event: SubmitEvent) => {
        event.preventDefault();
        save();
      }}
    >
      {lines === 1 ? (
        // Typing replaces the text, which may be an automatic label.
        <input type="text" className="field" onFocus={(event) => event.target.select()} {...fieldProps} />
      ) : (
        <textarea className="textarea" rows={lines} {...fieldProps} />
      )}
      <Button type="submit" variant="primary" disabled={saving.isPending}>
        Save
      </Button>
      <Button variant="ghost" onClick={onCancel}>
        Cancel
      </Button>
      {isSaved && (
        <Button variant="ghost" disabled={saving.isPending} onClick={() => onSave(null)}>
          Remove {label.toLowerCase()}
        </Button>
      )}
      <Failure error={saving.error} />
    </form>
  );
}

interface LabelEditorProps {
  readonly run: string;
  readonly row: ExpertDetail["row"];
  readonly onClose: () => void;
}

/** Editor of an expert's label, which starts with the automatic one. */
export function LabelEditor({ run, row, onClose }: LabelEditorProps) {
  const mutation = useSetLabel(run, row.expert);
  return (
    <TextEditor
      label={`Label of ${row.expert}`}
      initial={row.label ?? shownAutomatic(row.automatic)?.label ?? ""}
      isSaved={row.label !== null}
      maxLength={200}
      lines={1}
      saving={mutation}
      onSave={(text) => mutation.mutate(text, { onSuccess: onClose })}
      onCancel={onClose}
    />
  );
}

/** The note on an expert, editable in place. */
function Notes({ run, expert, note }: { readonly run: string; readonly expert: number; readonly note: string | null }) {
  const [editing, setEditing] = useState(false);
  const noteMutation = useSetNote(run, expert);
  useShortcut("note", () => setEditing(true));
  if (editing)
    return (
      <TextEditor
        label="Note"
        initial={note ?? ""}
        isSaved={note !== null}
        maxLength={10_000}
        lines={3}
        saving={noteMutation}
        onSave={(text) => noteMutation.mutate(text, { onSuccess: () => setEditing(false) })}
        onCancel={() => setEditing(false)}
      />
    );
  return (
    <>
      <GhostButton icon="note" shortcut="note" onClick={() => setEditing(true)}>
        {note === null ? "Add note" : "Edit note"}
      </GhostButton>
      {note !== null && <p className="ink2 note-text">{note}</p>}
    </>
  );
}

interface ExpertHeadProps {
  readonly run: string;
  readonly detail: ExpertDetail;
}

/** Tags of an expert. Each links to the experts with the same tag; tags can be removed and added. */
function ExpertTags({ run, detail }: ExpertHeadProps) {
  const { expert, tags } = detail.row;
  const [text, setText] = useState("");
  const lists = useQuery(listsQuery(run));
  const links = usePageLinks();
  const tag = useSetTag(run, expert);
  const datalistId = useId();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (text.trim() !== "") tag.mutate({ tag: text.trim(), isTagged: true }, { onSuccess: () => setText("") });
  };
  return (
    <form className="row wrap" aria-label="Tags" onSubmit={submit}>
      {tags.map((name) => (
        <span key={name} className="chip">
          <Link to={links.page("experts", { tag: name })}>{name}</Link>
          <RemoveChip label={`Remove tag ${name}`} onRemove={() => tag.mutate({ tag: name, isTagged: false })} />
        </span>
      ))}
      <input
        className="field quiet tag-input"
        aria-label="Add tag"
        placeholder="Add tag"
        list={datalistId}
        maxLength={60}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <datalist id={datalistId}>
        {lists.data?.tags
          .filter((candidate) => !tags.includes(candidate.tag))
          .map((one) => (
            <option key={one.tag} value={one.tag} />
          ))}
      </datalist>
      <Failure error={tag.error} />
    </form>
  );
}

function Label({ run, detail }: ExpertHeadProps) {
  const [editing, setEditing] = useState(false);
  useShortcut("label", () => setEditing(true));
  const { label, automatic, expert } = detail.row;
  if (editing)
    return (
      <>
        <h1 className="sr">Expert {expert}</h1>
        <LabelEditor run={run} row={detail.row} onClose={() => setEditing(false)} />
      </>
    );
  return (
    <>
      <h1 className={label === null && namingLabel(automatic)?.is_clear === false ? "auto-label weak" : undefined}>
        {isNamedByTokens(detail.row) ? (
          <TokenName tokens={detail.row.top_tokens} />
        ) : (
          (label ?? namingLabel(automatic)?.label ?? `Expert ${expert}`)
        )}
      </h1>
      <GhostButton icon="edit" shortcut="label" onClick={() => setEditing(true)}>
        {label === null ? "Add label" : "Edit label"}
      </GhostButton>
    </>
  );
}

/** Whether there is neither a label nor an automatic one that is a name. */
const isNamedByTokens = ({ label, automatic, active_tokens: active }: ExpertDetail["row"]) =>
  label === null && namingLabel(automatic) === null && active > 0;

/** Of those that it fires on. */
const SUMMARY_TOKENS = 3;

/** Where the label comes from, and how well it predicts where the expert fires, or what it promotes. */
function LabelTrust({ run, detail }: ExpertHeadProps) {
  const { row, label_matches: matches, label_examples: examples } = detail;
  const { label, automatic } = row;
  const { words, direct } = useWrites(run, detail);
  if (label !== null)
    return (
      <li data-trust="unknown" title={words == null ? undefined : describeSample(null, direct)}>
        User label, not tested on where it fires{words == null ? "" : `; ${words}`}
      </li>
    );
  if (automatic === null) return null;
  const { precision, recall, f1, is_clear: isClear } = automatic;
  const contradicted = matches !== null && 2 * matches < examples;
  return (
    <li data-trust={contradicted || (f1 !== null && !isClear) ? "low" : f1 === null ? "unknown" : undefined}>
      <span className="auto-mark" title={describeAutomaticLabel(automatic)}>
        {automaticLabelScore(automatic)}
      </span>
      {f1 !== null && (
        <>
          {": covers "}
          <Term id="recall">{labelShare(recall)}</Term> of its activations
          {precision !== null && (
            <>
              , right on <Term id="precision">{labelShare(precision)}</Term> of its matches
            </>
          )}
        </>
      )}
      {matches !== null && (
        <>
          {"; matches "}
          <span className={contradicted ? "bad" : undefined}>
            {matches} of {examples} top examples
          </span>
        </>
      )}
    </li>
  );
}

/** On how many of the indexed tokens it fires. */
function FiresOn({ row: { density, active_tokens: active }, few_tokens: isFew }: ExpertDetail) {
  return (
    <li {...(isFew && { "data-trust": "low" })}>
      <Term id="density">Fires on</Term> {formatPlural(active, "indexed token")}, {formatShare(density)} %
      {isFew && ": too few to say what it responds to"}
    </li>
  );
}

/** What it fires on, and how far that and the label can be trusted. */
function Trust(props: ExpertHeadProps) {
  const { row } = props.detail;
  const { recurrence, compared_runs: compared } = row;
  return (
    <ul className="row wrap trust" aria-label="Reliability">
      <LabelTrust {...props} />
      {row.active_tokens > 0 && <FiresOn {...props.detail} />}
      {row.active_tokens > 0 && !isNamedByTokens(row) && (
        <li>
          <Term id="top_tokens">Most often on</Term>{" "}
          <TokenChips tokens={distinctWords(row.top_tokens)} first={SUMMARY_TOKENS} />
        </li>
      )}
      {recurrence !== null && compared !== null && (
        <li>
          <Term id="recurrence">Found again</Term> in {formatFoundAgain(row)} other runs
        </li>
      )}
    </ul>
  );
}

/** Navigate to another expert, keeping view settings but not the lock. */
function useGoToExpert() {
  const navigate = useNavigate();
  const links = usePageLinks();
  return (expert: number) => {
    const view = new URLSearchParams(window.location.search);
    const viewParams = Object.fromEntries(
      [...view].filter(([name]) => ["view", "breaks", "by", "test", "all", "details"].includes(name)),
    );
    void navigate(links.expert(expert, viewParams));
  };
}

/** Long enough for the current expert's own examples to render first. */
const PREFETCH_DELAY_MS = 20;

/** Prefetch the next and previous experts with the examples that their pages show first. */
function usePrefetchNeighbours(run: string, { next, previous }: ExpertDetail) {
  const queries = useQueryClient();
  useEffect(() => {
    let isCancelled = false;
    const fetchNeighbours = async () => {
      for (const expert of [next, previous]) {
        if (expert === null || isCancelled) continue;
        const { bins } = await queries.query(expertQuery(run, expert));
        await Promise.all([
          queries.infiniteQuery(examplesQuery(run, expert, 0, EXAMPLES_PER_PAGE)),
          ...weakerBins(bins, false).map(({ bin }) => queries.query(topExamplesQuery(run, expert, 1, bin))),
        ]);
      }
    };
    // Errors are ignored here: the expert's own page fetches again and reports them.
    const timer = setTimeout(() => void fetchNeighbours().catch(() => undefined), PREFETCH_DELAY_MS);
    return () => {
      isCancelled = true;
      clearTimeout(timer);
    };
  }, [queries, run, previous, next]);
}

function Neighbours({ run, detail }: ExpertHeadProps) {
  const goTo = useGoToExpert();
  const { previous, next } = detail;
  usePrefetchNeighbours(run, detail);
  const random = () => void visitRandomExpert(run, goTo);
  useShortcut("previous", () => previous !== null && goTo(previous));
  useShortcut("next", () => next !== null && goTo(next));
  useShortcut("random", random);
  return (
    <>
      <div className="btngroup">
        {(["previous", "next"] as const).map((side) => {
          const other = detail[side];
          return (
            <Button
              key={side}
              icon={side === "next" ? "chevronRight" : "chevronLeft"}
              shortcut={side}
              disabled={other === null}
              onClick={() => other !== null && goTo(other)}
            >
              <span className="sr">{side === "next" ? "Next" : "Previous"} expert</span>
              {other ?? "none"}
            </Button>
          );
        })}
      </div>
      <More run={run} detail={detail} onRandom={random} />
    </>
  );
}

/** What is needed less often: lists, another expert, files. */
function More({ run, detail, onRandom }: ExpertHeadProps & { readonly onRandom: () => void }) {
  const anchor = useRef<HTMLSpanElement>(null);
  const [isListing, setListing] = useState(false);
  const download = useDownload(run, detail);
  return (
    <span ref={anchor}>
      <ActionMenu
        label="More"
        actions={{ list: "Add to list", random: "Random expert", ...FILES }}
        onAction={(key) => (key === "list" ? setListing(true) : key === "random" ? onRandom() : download(key))}
        className="btn"
      >
        <Icon name="more" /> More
      </ActionMenu>
      <ListPopover
        run={run}
        experts={[detail.row.expert]}
        containing={detail.lists}
        triggerRef={anchor}
        isOpen={isListing}
        onOpenChange={setListing}
      />
    </span>
  );
}

/** The same number in runs of other layers that started at the same example tokens, with the reason. */
function SameNumber({ expert }: { readonly expert: number }) {
  const { summary, runs } = useCurrentRun();
  const alike = runs.filter(
    (run) =>
      summary !== null && run.layer !== summary.layer && run.indexed_tokens !== null && haveSameStart(run, summary),
  );
  if (alike.length === 0) return null;
  return (
    <span className="same-number">
      <Described description="These layers were trained with one seed, so expert n of each was initialised at the same example token. It often means the same in all of them.">
        Same number
      </Described>{" "}
      in layer{" "}
      {alike
        .toSorted((a, b) => a.layer - b.layer)
        .map(({ name, layer }) => (
          <Link key={name} className="link" to={pageLinks(name).expert(expert)}>
            {layer}
          </Link>
        ))}
    </span>
  );
}

export function ExpertHead({ run, detail }: ExpertHeadProps) {
  const { expert } = detail.row;
  const links = usePageLinks();
  const tray = useTray();
  const inTray = tray.has(expert);
  useShortcut("tray", () => tray.toggle(expert));
  return (
    <section className="band expert-head">
      <div className="ink2 row wrap expert-meta">
        <p>
          <span className="mono">{expert}</span> <span className="dim">in</span> <span className="mono">{run}</span>
        </p>
        <SameNumber expert={expert} />
        {detail.lists.map(({ id, name }) => (
          <Link key={id} className="chip" to={links.list(id)} title="A list with this expert">
            {name}
          </Link>
        ))}
        <ExpertTags run={run} detail={detail} />
        <Notes run={run} expert={expert} note={detail.note} />
      </div>
      <div className="row wrap expert-acts">
        <Neighbours run={run} detail={detail} />
        <Button
          variant={inTray ? "chosen" : "primary"}
          icon={inTray ? "check" : "plus"}
          shortcut="tray"
          aria-pressed={inTray}
          onClick={() => tray.toggle(expert)}
        >
          {inTray ? "In tray" : "Add to tray"}
        </Button>
      </div>
      <div className="row wrap label-line">
        <Label run={run} detail={detail} />
      </div>
      <Trust run={run} detail={detail} />
    </section>
  );
}
