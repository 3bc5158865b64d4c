/** One of the two texts: a kind of the indexed text, or documents that are pasted or read from a file. */

import { useMutation } from "@tanstack/react-query";
import { FileTrigger } from "react-aria-components";

import type { TextKind } from "@/api/types";
import { PromptBox } from "@/components/prompt/prompt-box";
import { TriggerButton } from "@/components/ui/button";
import { formatCount } from "@/lib/text/format";

import { splitDocuments, textOfFile } from "./documents";

interface TextChoiceProps {
  readonly side: "A" | "B";
  /** Undefined while they load. */
  readonly kinds: readonly TextKind[] | undefined;
  /** The chosen kind; null for a pasted text. */
  readonly kind: string | null;
  readonly text: string;
  readonly onKind: (kind: string | null) => void;
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
  return (
    <section className="contrast-text" aria-label={`Text ${side}`}>
      <div className="contrast-source">
        <b>Text {side}</b>
        {kinds?.length !== 0 && (
          <select
            aria-label={`Source of text ${side}`}
            value={kind ?? ""}
            onChange={(event) => onKind(event.target.value === "" ? null : event.target.value)}
          >
            <option value="">Own text</option>
            {kinds?.map((each) => (
              <option key={each.kind} value={each.kind}>
                {each.kind} ({formatCount(each.documents)} documents)
              </option>
            ))}
          </select>
        )}
        <span className="grow" />
        {kind === null && (
          <>
            {numDocuments > 0 && <span className="dim">{formatCount(numDocuments)} documents</span>}
            <OpenFile side={side} onText={onText} />
          </>
        )}
      </div>
      {kind === null ? (
        <PromptBox
          label={`Documents of text ${side}`}
          placeholder="Documents, separated by blank lines"
          value={text}
          onChange={onText}
          onSubmit={onSubmit}
          onOpen="leave-focus"
        />
      ) : (
        <p className="dim contrast-kind">Random documents of this kind from the text that the run was trained on.</p>
      )}
    </section>
  );
}
