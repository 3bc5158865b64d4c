/** The menu of Share. Loaded with the first page that has something to share. */

import { useMutation } from "@tanstack/react-query";
import { useLocation } from "react-router";

import { messageOf } from "@/api/http";
import { fetchSnapshot } from "@/api/mutations";
import type { SnapshotRequest } from "@/api/types";
import { ActionMenu } from "@/components/ui/action-menu";
import { Icon } from "@/components/ui/icon";
import { saveFile } from "@/lib/browser/save-file";
import { resolvedTheme } from "@/lib/browser/stores";

const WIDTH = 1200;
const HEIGHT = 630;

/** Draws the snapshot's own HTML inside an SVG. The snapshot loads nothing, so the canvas may be read. */
async function snapshotCard(html: string): Promise<Blob> {
  const page = new DOMParser().parseFromString(html, "text/html");
  const card = page.querySelector("article");
  const style = page.querySelector("style");
  if (card === null || style === null) throw new Error("The snapshot has no content.");
  card.classList.add("card");
  card.style.colorScheme = resolvedTheme();
  card.prepend(style);
  const content = new XMLSerializer().serializeToString(card);
  const size = `width="${WIDTH}" height="${HEIGHT}"`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size}><foreignObject ${size}>${content}</foreignObject></svg>`;
  const image = new Image();
  // A data URL, because browsers do not let canvases with other SVGs be read.
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = new OffscreenCanvas(WIDTH, HEIGHT);
  canvas.getContext("2d")?.drawImage(image, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}

const FORMATS = { html: "HTML page, works offline", png: "PNG card, 1200 × 630", md: "Copy as Markdown" } as const;
const OF_CIRCUIT = { ...FORMATS, graph: "Graph for circuit-tracer and Neuronpedia" } as const;
type Format = keyof typeof OF_CIRCUIT;

export interface Shared {
  readonly run: string;
  readonly request: () => SnapshotRequest;
}

async function deliver({ run, request }: Shared, format: Format): Promise<void> {
  const body = request();
  const files = await fetchSnapshot(run, body);
  const name = [run, body.kind, ...(body.kind === "expert" ? [body.expert] : [])].join("-");
  if (format === "html") saveFile(`${name}.html`, files.html, "text/html");
  else if (format === "graph") saveFile("circuit.json", JSON.stringify(files.graph), "application/json");
  else if (format === "png") saveFile(`${name}.png`, await snapshotCard(files.html), "image/png");
  else {
    const save = () => saveFile(`${name}.md`, files.markdown, "text/markdown");
    await navigator.clipboard.writeText(files.markdown).catch(save);
  }
}

export default function ShareMenu({ current }: { readonly current: () => Shared | null }) {
  const { mutate, isPending, isSuccess, error, variables } = useMutation({
    mutationFn: async (format: Format) => {
      const shared = current();
      if (shared !== null) await deliver(shared, format);
    },
  });
  const formats = (useLocation().pathname === "/circuits" ? OF_CIRCUIT : FORMATS) as typeof OF_CIRCUIT;
  const copied = isSuccess && variables === "md" ? "Markdown copied" : "";
  return (
    <>
      <ActionMenu label="Share" actions={formats} onAction={mutate} className="btn wide" isDisabled={isPending}>
        <Icon name="share" />
        {isPending ? "Preparing…" : "Share"}
      </ActionMenu>
      <span className={error === null ? "sr" : "bad"} role="status">
        {error === null ? copied : messageOf(error)}
      </span>
    </>
  );
}
