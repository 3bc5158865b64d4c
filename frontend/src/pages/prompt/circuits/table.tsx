/** The circuit as a table, with predicted beside measured changes. */

import type { CircuitCheck, CircuitResponse } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { TokenChip } from "@/components/tokens/token-chip";
import { ScrollBox } from "@/components/ui/scroll-box";
import { formatFixed } from "@/lib/text/format";

import { effectText, expertInfo } from "./names";

interface TableProps {
  readonly response: CircuitResponse;
  readonly check: CircuitCheck | null;
  readonly onSelect: (index: number) => void;
}

const effect = (value: number | null | undefined) => (value == null ? "…" : effectText(value, 3));

export function ExpertTable({ response, check, onSelect }: TableProps) {
  const { nodes, tokens } = response.graph;
  return (
    <ScrollBox className="figure-table circuit-table" label="Experts of the circuit">
      <table className="grid plain">
        <thead>
          <tr>
            <th>Expert</th>
            <th>Token</th>
            <th className="num">Layer</th>
            <th className="num">Activation</th>
            <th className="num">Predicted effect</th>
            <th className="num">Measured effect</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node, index) => {
            if (node.kind !== "expert") return null;
            const info = expertInfo(response, node);
            return (
              <tr key={index}>
                <td className="what">
                  <button type="button" onClick={() => onSelect(index)}>
                    <span className="mono id">{node.expert}</span>{" "}
                    {info !== undefined && (
                      <ExpertLabel label={info.label} automatic={info.automatic} topTokens={info.top_tokens} />
                    )}
                  </button>
                </td>
                <td>
                  <TokenChip text={tokens[node.position]?.text ?? ""} />
                </td>
                <td className="num">{node.layer}</td>
                <td className="num">{formatFixed(node.activation ?? 0)}</td>
                <td className="num">{effectText(node.predicted, 3)}</td>
                <td className="num">{effect(check?.measured[index])}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </ScrollBox>
  );
}
