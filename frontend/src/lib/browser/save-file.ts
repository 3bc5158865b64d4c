/** Download a file created in the page. */

type FileType = "application/json" | "image/png" | "text/csv" | "text/html" | "text/markdown";

export function saveFile(name: string, content: string | Blob, type: FileType): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
