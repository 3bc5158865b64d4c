/** The tray's bar at the bottom of the page; it opens upwards to list all edits. */

import { useState } from "react";
import { useLocation } from "react-router";

import type { ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { AddToList } from "@/components/lists/add-to-list";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { type Tray, useTray } from "@/components/tray/tray-context";
import { GhostButton, LinkButton } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { Icon } from "@/components/ui/icon";
import { useExpertRows } from "@/hooks/use-experts";
import { useShortcut } from "@/hooks/use-shortcut";
import { describeEdit, type Edit, editKey, formatEdits } from "@/lib/edits/edits";

import { usePromptedLink } from "./navigation/pages";

const MAX_CHIPS = 6;

function TrayEntry({ edit, row, tray }: { readonly edit: Edit; readonly row?: ExpertRow; readonly tray: Tray }) {
  const links = usePageLinks();
  return (
    <li className="row">
      <a className="mono" href={(edit.run === undefined ? links : pageLinks(edit.run)).expert(edit.expert)}>
        {editKey(edit)}
      </a>
      <span className="tray-label">
        {row !== undefined && <ExpertLabel label={row.label} automatic={row.automatic} />}
      </span>
      <span className="dim">{describeEdit(edit)}</span>
      <GhostButton
        icon="close"
        aria-label={`Remove ${editKey(edit)} from the tray`}
        onClick={() => tray.remove(edit.expert, edit.run)}
      />
    </li>
  );
}

function OpenTray({ tray, onClose }: { readonly tray: Tray; readonly onClose: () => void }) {
  const { name: run } = useCurrentRun();
  const own = tray.edits.flatMap((edit) => (edit.run === undefined ? [edit.expert] : []));
  const rows = useExpertRows(run, own);
  useShortcut("release", onClose);
  return (
    <div className="tray-open" role="region" aria-label="Edits in the tray">
      <ul>
        {tray.edits.map((edit) => {
          const row = edit.run === undefined ? rows.get(edit.expert) : undefined;
          return <TrayEntry key={editKey(edit)} edit={edit} tray={tray} {...(row !== undefined && { row })} />;
        })}
      </ul>
      <footer>
        {run !== null && <AddToList run={run} experts={own} className="btn sm ghost" />}
        <CopyButton
          size="small"
          variant="ghost"
          text={() => tray.edits.map((e) => `--edit ${formatEdits([e])}`).join(" ")}
        >
          Copy as CLI flags
        </CopyButton>
        <GhostButton onClick={() => tray.replaceAll([])}>Clear tray</GhostButton>
      </footer>
    </div>
  );
}

export function TrayBar() {
  const tray = useTray();
  const linkTo = usePromptedLink();
  const [open, setOpen] = useState(false);
  const isShown = !/^\/(steering|chat|strength)/.test(useLocation().pathname);
  const count = tray.edits.length;
  // The page shows the tray itself.
  if (!isShown) return null;
  return (
    <aside className="row tray" aria-label="Tray">
      {open && count > 0 && <OpenTray tray={tray} onClose={() => setOpen(false)} />}
      <button
        type="button"
        className="row tray-name"
        aria-expanded={open}
        disabled={count === 0}
        onClick={() => setOpen(!open)}
      >
        Tray<span>{count}</span>
        {count > 0 && <Icon name={open ? "chevronDown" : "chevronUp"} />}
      </button>
      {count === 0 && (
        <span className="dim row tray-hint">
          Add experts with <Icon name="plus" /> on any page
        </span>
      )}
      {tray.edits.slice(0, MAX_CHIPS).map((edit) => (
        <span key={editKey(edit)} className="chip">
          <span className="mono">{editKey(edit)}</span>
          <span className="dim">{describeEdit(edit)}</span>
        </span>
      ))}
      {count > MAX_CHIPS && <span className="chip">+{count - MAX_CHIPS}</span>}
      <LinkButton size="small" variant={count > 0 ? "primary" : "plain"} shortcut="steer" to={linkTo("steering")}>
        Steer
      </LinkButton>
    </aside>
  );
}
