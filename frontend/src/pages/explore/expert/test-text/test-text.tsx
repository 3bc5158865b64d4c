/** Routes a user's text and shows this expert's activation and rank on each token. */

import "@/components/prompt/prompt.css";

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import { routingQuery } from "@/api/queries";
import type { RoutingResponse } from "@/api/types";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { TokenGroup } from "@/components/tokens/token-group";
import { TokenText } from "@/components/tokens/token-text";
import { TokenTip } from "@/components/tokens/token-tip";
import { Button } from "@/components/ui/button";
import { ErrorState } from "@/components/ui/states";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { formatCount, formatFixed } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";

import { findActivation, type Activation } from "./activation";

interface TestTextProps {
  readonly run: string;
  readonly expert: number;
  readonly largest: number;
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly onHover: (activation: number | null) => void;
}

function summary({ pieces, peak }: Activation, largest: number): string {
  const active = pieces.filter((piece) => piece.value !== null).length;
  const strongest = pieces.find((piece) => piece.index === peak)?.value ?? null;
  if (strongest === null) return `Inactive on all ${formatCount(pieces.length)} tokens.`;
  const share = largest > 0 ? `, ${formatFixed((100 * strongest) / largest, 0)} % of its overall maximum` : "";
  return `Active on ${formatCount(active)} of ${formatCount(pieces.length)} tokens, maximum ${formatFixed(strongest)}${share}.`;
}

function TestedText({
  response,
  expert,
  largest,
  onHover,
}: Omit<TestTextProps, "run" | "text" | "onText"> & {
  readonly response: RoutingResponse;
}) {
  const activation = useMemo(() => findActivation(response, expert), [response, expert]);
  const tip = (piece: Piece) => {
    const rank = activation.ranks.get(piece.index);
    return (
      <TokenTip
        text={piece.text}
        id={piece.id}
        activation={piece.value}
        largest={largest}
        {...(rank !== undefined && { rank })}
      />
    );
  };
  return (
    <>
      <p role="status">{summary(activation, largest)}</p>
      <TokenGroup
        className="tested"
        label="Tested text"
        pieces={activation.pieces}
        tip={tip}
        onHover={(piece) => onHover(piece?.value ?? null)}
      >
        <TokenText
          pieces={activation.pieces}
          shade={(piece) => sequentialClass(piece.value ?? 0, largest)}
          peak={activation.peak}
          layout="block"
        />
      </TokenGroup>
    </>
  );
}

export function TestText({ run, expert, largest, text, onText, onHover }: TestTextProps) {
  const [draft, setDraft] = useState(text);
  const { data, error, isFetching, isPlaceholderData } = useQuery(routingQuery(run, text));
  const submit = () => onText(draft.trim());
  return (
    <section className="pane test-text">
      <div className="pane-h">
        <h2>Test on a text</h2>
        <span className="note">computes its activation on each token with the language model</span>
      </div>
      <div className="prompt-row">
        <PromptBox
          label="Text to test the expert on"
          placeholder="Type or paste a text"
          value={draft}
          onChange={setDraft}
          onSubmit={submit}
          onOpen="leave-focus"
        />
        <Button onClick={submit} disabled={draft.trim() === ""}>
          {isFetching ? "Testing" : "Test"} <kbd>{SUBMIT_KEY}</kbd>
        </Button>
      </div>
      {error !== null && <ErrorState error={error} />}
      {data !== undefined && !isPlaceholderData && text !== "" && (
        <TestedText response={data} expert={expert} largest={largest} onHover={onHover} />
      )}
    </section>
  );
}
