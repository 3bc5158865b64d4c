/** This expert on a text of one's own: its coefficient on each token, and where it stands among the active ones. */

import "@/components/prompt/prompt.css";

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import { routingQuery } from "@/api/queries";
import type { RoutingResponse } from "@/api/types";
import { Button } from "@/components/button";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { ErrorState } from "@/components/states";
import { TokenGroup } from "@/components/tokens/token-group";
import { TokenText } from "@/components/tokens/token-text";
import { TokenTip } from "@/components/tokens/token-tip";
import { sequentialClass } from "@/lib/colour-scale";
import { formatCount, formatFixed } from "@/lib/format";
import type { Piece } from "@/lib/kwic";

import { activationOf, type Activation } from "./activation";

interface TestTextProps {
  readonly run: string;
  readonly expert: number;
  readonly largest: number;
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly onHover: (coefficient: number | null) => void;
}

function summary({ pieces, peak }: Activation, largest: number): string {
  const active = pieces.filter((piece) => piece.value !== null).length;
  const strongest = pieces.find((piece) => piece.index === peak)?.value ?? null;
  if (strongest === null) return `Silent on all ${formatCount(pieces.length)} tokens.`;
  const share = largest > 0 ? `, ${formatFixed((100 * strongest) / largest, 0)} % of its largest` : "";
  return `Active on ${formatCount(active)} of ${formatCount(pieces.length)} tokens, at most ${formatFixed(strongest, 4)}${share}.`;
}

function Tested({
  response,
  expert,
  largest,
  onHover,
}: Omit<TestTextProps, "run" | "text" | "onText"> & {
  readonly response: RoutingResponse;
}) {
  const tested = useMemo(() => activationOf(response, expert), [response, expert]);
  const tip = (piece: Piece) => {
    const rank = tested.ranks.get(piece.index);
    return (
      <TokenTip
        text={piece.text}
        id={piece.id}
        coefficient={piece.value}
        largest={largest}
        {...(rank !== undefined && { rank })}
      />
    );
  };
  return (
    <>
      <p role="status">{summary(tested, largest)}</p>
      <TokenGroup
        className="tested"
        label="Tested text"
        pieces={tested.pieces}
        tip={tip}
        onHover={(piece) => onHover(piece?.value ?? null)}
      >
        <TokenText
          pieces={tested.pieces}
          shade={(piece) => sequentialClass(piece.value ?? 0, largest)}
          peak={tested.peak}
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
        <h2>Test it on a text</h2>
        <span className="note">its coefficient on each token, from the language model, now</span>
      </div>
      <div className="prompt-row">
        <PromptBox
          label="Text to test this expert on"
          placeholder="Type or paste a text"
          value={draft}
          onChange={setDraft}
          onSubmit={submit}
        />
        <Button onClick={submit} disabled={draft.trim() === ""}>
          {isFetching ? "Testing" : "Test"} <kbd>{SUBMIT_KEY}</kbd>
        </Button>
      </div>
      {error !== null && <ErrorState error={error} />}
      {data !== undefined && !isPlaceholderData && text !== "" && (
        <Tested response={data} expert={expert} largest={largest} onHover={onHover} />
      )}
    </section>
  );
}
