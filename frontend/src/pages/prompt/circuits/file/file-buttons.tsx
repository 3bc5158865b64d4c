/** Buttons that save a graph as a file, and open one. */

import { useMutation } from "@tanstack/react-query";
import { FileTrigger } from "react-aria-components";

import type { GraphFile } from "@/api/circuits";
import { Button, TriggerButton } from "@/components/ui/button";
import { saveFile } from "@/lib/browser/save-file";

import { fileName, type OpenedGraph } from "./graph-file";
import { openGraph } from "./open-graph";

interface SaveGraphProps {
  /** Called on press, since the server writes the file. */
  readonly toFile: () => Promise<GraphFile>;
  /** False until the measured effects, which belong to the file, are there. */
  readonly isReady: boolean;
}

export function SaveGraph({ toFile, isReady }: SaveGraphProps) {
  const { mutate, isPending, error } = useMutation({
    mutationFn: toFile,
    onSuccess: (file) => saveFile(fileName(file), JSON.stringify(file), "application/json"),
  });
  return (
    <>
      {error !== null && <span role="alert">{error.message}</span>}
      <Button
        size="small"
        icon="download"
        disabled={isPending || !isReady}
        title={
          isReady
            ? "Graph, pins, supernodes and measured effects in the format of circuit-tracer and Neuronpedia"
            : "Available once the experts have been ablated, so that the file has the measured effects"
        }
        onClick={() => mutate()}
      >
        Save graph
      </Button>
    </>
  );
}

export function OpenGraph({ onOpen }: { readonly onOpen: (opened: OpenedGraph) => void }) {
  const { mutate, isPending, error } = useMutation({ mutationFn: openGraph, onSuccess: onOpen });
  const choose = (files: FileList | null) => {
    const file = files?.item(0);
    if (file != null) mutate(file);
  };
  return (
    <>
      <FileTrigger acceptedFileTypes={["application/json", ".json"]} onSelect={choose}>
        <TriggerButton className="btn" isDisabled={isPending}>
          Open graph
        </TriggerButton>
      </FileTrigger>
      {error !== null && (
        <span className="open-error" role="alert">
          {error.message}
        </span>
      )}
    </>
  );
}
