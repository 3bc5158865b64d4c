/** A snapshot as a picture for slides and messages, in the page's theme. */

const WIDTH = 1200;
const HEIGHT = 630;

function isDark(): boolean {
  const { theme } = document.documentElement.dataset;
  return theme === undefined ? window.matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
}

/** Draws the snapshot's own HTML inside an SVG. The snapshot loads nothing, so the canvas may be read. */
export async function snapshotCard(html: string): Promise<Blob> {
  const page = new DOMParser().parseFromString(html, "text/html");
  const card = page.querySelector("article");
  const style = page.querySelector("style");
  if (card === null || style === null) throw new Error("The snapshot has no content.");
  card.classList.add("card");
  card.style.colorScheme = isDark() ? "dark" : "light";
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
