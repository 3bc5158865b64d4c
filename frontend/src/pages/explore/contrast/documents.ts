/** Documents of a pasted text or an opened file. */

const MAX_DOCUMENTS = 5000;

/** Paragraphs separated by blank lines. */
export function splitDocuments(text: string): readonly string[] {
  const parts = text.split(/\n[^\S\n]*\n\s*/).map((part) => part.trim());
  return parts.filter((part) => part !== "").slice(0, MAX_DOCUMENTS);
}

function textOfLine(line: string, number: number): string {
  let row: unknown = null;
  try {
    row = JSON.parse(line);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  const text = typeof row === "object" && row !== null && "text" in row ? row.text : row;
  if (typeof text === "string") return text;
  throw new Error(`Line ${number} has no text. Each line of a .jsonl file needs an object with the field "text".`);
}

/** The documents of a file as one text: the lines of a .jsonl file, else the text itself. */
export function textOfFile(name: string, content: string): string {
  if (!name.endsWith(".jsonl")) return content;
  const lines = content.split("\n").flatMap((line, i) => (line.trim() === "" ? [] : [textOfLine(line, i + 1)]));
  // Blank lines separate documents in the text box.
  return lines.map((line) => line.replace(/\n\s*\n/g, "\n").trim()).join("\n\n");
}
