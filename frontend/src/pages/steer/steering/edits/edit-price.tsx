/** What the tray costs where nothing should change: on unrelated text and in an ability test, beside random experts. */

import "./edit-price.css";

import { useState } from "react";

import { streamPrice } from "@/api/http/stream";
import type { EditPrice, PriceDoneEvent, PriceProgressEvent, PriceRequest } from "@/api/types";
import { Button } from "@/components/ui/button";
import { Remaining } from "@/components/ui/remaining";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { type Edit, toHttpEdit } from "@/lib/edits/edits";
import { formatFixed, formatPercent, formatSigned } from "@/lib/text/format";

const ITEMS_PER_STEP = 4;
const KINDS = ["facts", "arithmetic", "grammar"] as const;
const percent = (share: number) => `${formatPercent(share, 1)} %`;

function Price({ price }: { readonly price: EditPrice }) {
  const { edits, random, original_ability: original, ability, random_ability: randomAbility, items } = price;
  const kinds = KINDS.map((kind) => `${kind} ${percent(original[kind])} → ${percent(ability[kind])}`).join(", ");
  return (
    <dl>
      <dt>KL divergence</dt>
      <dd>
        {formatFixed(edits.kl)} <small>random {formatFixed(random.kl)}</small>
      </dd>
      <dt>Loss</dt>
      <dd>
        {formatSigned(edits.loss_increase)} <small>random {formatSigned(random.loss_increase)}</small>
      </dd>
      <dt>Ability</dt>
      <dd title={`Share of ${items} items: ${kinds}`}>
        {percent(original.all)} → {percent(ability.all)} <small>random {percent(randomAbility.all)}</small>
      </dd>
    </dl>
  );
}

interface EditPriceProps {
  /** The steered run. */
  readonly run: string;
  readonly edits: readonly Edit[];
}

export function EditPriceLine({ run, edits }: EditPriceProps) {
  const [measured, setMeasured] = useState<{ readonly key: string; readonly price: EditPrice } | null>(null);
  const work = useStreamedWork<PriceRequest, PriceProgressEvent, PriceDoneEvent>(
    (request, signal) => streamPrice(run, request, signal),
    ({ price }, request) => setMeasured({ key: JSON.stringify(request.edits), price }),
  );
  const request = { edits: edits.map(toHttpEdit) };
  const price = measured?.key === JSON.stringify(request.edits) ? measured.price : null;
  const { done = 0, total = 0 } = work.progress ?? {};
  const hasCondition = edits.some((edit) => edit.when !== undefined);
  const isWorking = work.status === "working";
  return (
    <section className="edit-price" aria-label="Price of the edits">
      <header>
        <h3>Price on unrelated text</h3>
        {isWorking ? (
          <Button size="small" icon="stop" onClick={work.stop}>
            Stop
          </Button>
        ) : (
          price === null && (
            <Button size="small" icon="chart" disabled={hasCondition} onClick={() => work.start(request)}>
              Measure
            </Button>
          )
        )}
      </header>
      {isWorking && (
        <label className="dim">
          <progress {...(done > 0 && { value: done / total })} /> {done} of {total || "…"} texts
          <Remaining done={done} total={total} every={ITEMS_PER_STEP} />
        </label>
      )}
      {work.failure !== null && <p className="bad">{work.failure}</p>}
      {price !== null ? (
        <div role="status">
          <Price price={price} />
          <p>KL divergence and loss in nats per token. Random: the same edits of random experts.</p>
        </div>
      ) : (
        !isWorking && (
          <p>
            {hasCondition
              ? "Edits with conditions have no price, because they may not apply to other text."
              : "KL divergence, loss and a 200-item ability test, beside random experts. Takes about half a minute."}
          </p>
        )
      )}
    </section>
  );
}
