/** One of the two texts: a kind of the indexed text, or documents that are pasted or read from a file. */

import { useMutation } from "@tanstack/react-query";
import { FileTrigger } from "react-aria-components";

import type { TextKind } from "@/api/types";
import { PromptBox } from "@/components/prompt/prompt-box";
import { TriggerButton } from "@/components/ui/button";
import { formatPlural } from "@/lib/text/format";

import { OWN_TEXT } from "./contrast-params";
import { splitDocuments, textOfFile } from "./documents";

interface TextChoiceProps {
  readonly side: "A" | "B";
  /** Undefined while they load. */
  readonly kinds: readonly TextKind[] | undefined;
  /** The chosen kind, or `OWN_TEXT`. */
  readonly kind: string;
  readonly text: string;
  readonly onKind: (kind: string) => void;
  readonly onText: (text: string) => void;
  readonly onSubmit: () => void;
}

function OpenFile({ side, onText }: Pick<TextChoiceProps, "side" | "onText">) {
  const { mutate, isPending, error } = useMutation({
    mutationFn: async (file: File) => textOfFile(file.name, await file.text()),
    onSuccess: onText,
  });
  const choose = (files: FileList | null) => {
    const file = files?.item(0);
    if (file != null) mutate(file);
  };
  return (
    <>
      <FileTrigger acceptedFileTypes={["text/plain", ".txt", ".jsonl"]} onSelect={choose}>
        <TriggerButton className="btn" isDisabled={isPending} aria-label={`Open file as text ${side}`}>
          Open file
        </TriggerButton>
      </FileTrigger>
      {error !== null && (
        <span className="bad" role="alert">
          {error.message}
        </span>
      )}
    </>
  );
}

export function TextChoice({ side, kinds, kind, text, onKind, onText, onSubmit }: TextChoiceProps) {
  const numDocuments = splitDocuments(text).length;
  // While the kinds load, one of them will probably be chosen.
  const isOwn = kind === OWN_TEXT && kinds !== undefined;
  return (
    <section className="contrast-text" aria-label={`Text ${side}`}>
      <div className="contrast-source">
        <b>Text {side}</b>
        {kinds?.length !== 0 && (
          <select aria-label={`Source of text ${side}`} value={kind} onChange={(event) => onKind(event.target.value)}>
            <option value={OWN_TEXT}>Own text</option>
            <optgroup label="Kinds of the indexed text">
              {kinds?.map((each) => (
                <option key={each.kind} value={each.kind}>
                  {each.kind} ({formatPlural(each.documents, "document")})
                </option>
              ))}
            </optgroup>
          </select>
        )}
        <span className="grow" />
        {isOwn && (
          <>
            {numDocuments > 0 && <span className="dim">{formatPlural(numDocuments, "document")}</span>}
            <OpenFile side={side} onText={onText} />
          </>
        )}
      </div>
      {isOwn && (
        <PromptBox
          label={`Documents of text ${side}`}
          placeholder="10 documents or more, separated by blank lines"
          value={text}
          onChange={onText}
          onSubmit={onSubmit}
          onOpen="leave-focus"
        />
      )}
    </section>
  );
}
