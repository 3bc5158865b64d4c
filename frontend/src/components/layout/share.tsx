/** Share: what a page shows, as files for people who have no server. Pages say what that is with `useShare`. */

import { useMutation } from "@tanstack/react-query";
import { useEffect, useSyncExternalStore } from "react";
import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import { messageOf } from "@/api/http/errors";
import { client, unwrap } from "@/api/http/client";
import type { SnapshotFiles, SnapshotRequest } from "@/api/types";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { saveFile } from "@/lib/browser/save-file";
import { snapshotCard } from "@/lib/browser/snapshot-card";

interface Shared {
  readonly run: string;
  readonly request: () => SnapshotRequest;
}

let shared: Shared | null = null;
const listeners = new Set<() => void>();

function publish(next: Shared | null) {
  const isChanged = (shared === null) !== (next === null);
  shared = next;
  if (isChanged) for (const listener of listeners) listener();
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Offers something in the page bar, until the component is gone. Null while there is nothing yet. */
export function useShare(run: string, request: (() => SnapshotRequest) | null) {
  useEffect(() => publish(request && { run, request }));
  useEffect(() => () => publish(null), []);
}

const FORMATS = { html: "HTML page, works offline", png: "PNG card, 1200 × 630", md: "Copy as Markdown" } as const;
type Format = keyof typeof FORMATS;

async function deliver({ run, request }: Shared, format: Format): Promise<void> {
  const body = request();
  const path = { params: { path: { run } } };
  const files: SnapshotFiles = await unwrap(client.POST("/api/runs/{run}/snapshot", { ...path, body }));
  const name = [run, body.kind, ...(body.kind === "expert" ? [body.expert] : [])].join("-");
  if (format === "html") saveFile(`${name}.html`, files.html, "text/html");
  else if (format === "png") saveFile(`${name}.png`, await snapshotCard(files.html), "image/png");
  else {
    const save = () => saveFile(`${name}.md`, files.markdown, "text/markdown");
    await navigator.clipboard.writeText(files.markdown).catch(save);
  }
}

export function Share() {
  const isShareable = useSyncExternalStore(subscribe, () => shared !== null);
  const { mutate, isPending, isSuccess, error, variables } = useMutation({
    mutationFn: async (format: Format) => {
      if (shared !== null) await deliver(shared, format);
    },
  });
  if (!isShareable) return null;
  const copied = isSuccess && variables === "md" ? "Markdown copied" : "";
  return (
    <MenuTrigger>
      <TriggerButton className="btn wide" isDisabled={isPending}>
        <Icon name="share" />
        {isPending ? "Preparing…" : "Share"}
      </TriggerButton>
      <span className={error === null ? "sr" : "bad"} role="status">
        {error === null ? copied : messageOf(error)}
      </span>
      <Popover className="popover" placement="bottom end">
        <Menu className="menu" aria-label="Share" onAction={(key) => mutate(key as Format)}>
          {Object.entries(FORMATS).map(([format, name]) => (
            <MenuItem key={format} id={format}>
              {name}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
