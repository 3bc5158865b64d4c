/** Pinned nodes: a list to come back to, and to group into supernodes. */

import { useState } from "react";

import type { CircuitResponse } from "@/api/types";
import { Button } from "@/components/ui/button";
import type { SetParams, Values } from "@/hooks/use-url-state";
import type { CIRCUIT_PARAMS } from "@/pages/prompt/circuits/circuit-params";
import { nodeName } from "@/pages/prompt/circuits/graph/node-labels";
import { groupId } from "@/pages/prompt/circuits/graph/shown-graph";

interface PinsPaneProps {
  readonly response: CircuitResponse;
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

function nameOf(response: CircuitResponse, id: string): string {
  const node = response.graph.nodes[response.ids.indexOf(id)];
  return node === undefined ? `${id}, not in this graph` : nodeName(response, node);
}

function GroupForm({ onGroup }: { readonly onGroup: (name: string) => void }) {
  const [name, setName] = useState("");
  return (
    <form
      className="group-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim() !== "") onGroup(name.trim());
      }}
    >
      <input
        className="field"
        aria-label="Name of the supernode"
        placeholder="Name of the supernode"
        maxLength={60}
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <Button type="submit" size="small" variant="primary" disabled={name.trim() === ""}>
        Group
      </Button>
    </form>
  );
}

/** Pinned nodes outside supernodes, with checkboxes that choose the members of a new one. */
function PinnedNodes({ response, params, setParams }: PinsPaneProps) {
  const { pinned, groups } = params;
  const [checked, setChecked] = useState<readonly string[]>([]);
  const grouped = new Set(groups.flatMap(({ nodes }) => nodes));
  const single = pinned.filter((id) => !grouped.has(id));
  const members = single.filter((id) => checked.includes(id));
  const toggle = (id: string) =>
    setChecked(checked.includes(id) ? checked.filter((one) => one !== id) : [...checked, id]);
  const group = (name: string) => {
    const supernode = { name, nodes: members };
    setChecked([]);
    setParams((current) => ({
      groups: [...current.groups.filter((other) => other.name !== name), supernode],
      node: groupId(supernode),
    }));
  };
  return (
    <>
      <ul className="pins">
        {single.map((id) => (
          <li key={id}>
            <input
              type="checkbox"
              aria-label={`Group ${nameOf(response, id)}`}
              checked={checked.includes(id)}
              onChange={() => toggle(id)}
            />
            <button type="button" className="name" onClick={() => setParams({ node: id })}>
              {nameOf(response, id)}
            </button>
            <Button
              size="small"
              variant="ghost"
              icon="close"
              aria-label={`Unpin ${nameOf(response, id)}`}
              onClick={() => setParams((current) => ({ pinned: current.pinned.filter((one) => one !== id) }))}
            />
          </li>
        ))}
      </ul>
      {members.length > 1 ? (
        <GroupForm onGroup={group} />
      ) : (
        single.length > 1 && <p className="dim">Check two or more to group them into a supernode.</p>
      )}
    </>
  );
}

export function PinsPane(props: PinsPaneProps) {
  const { pinned, groups, subgraph } = props.params;
  const { setParams } = props;
  if (pinned.length === 0 && groups.length === 0) return null;
  return (
    <section aria-label="Pinned nodes">
      <div className="pane-h">
        <h2>Pinned nodes</h2>
        <span className="note">{pinned.length}</span>
        <span className="grow" />
        <Button
          size="small"
          variant={subgraph === "pinned" ? "chosen" : "plain"}
          aria-pressed={subgraph === "pinned"}
          onClick={() => setParams((current) => ({ subgraph: current.subgraph === "pinned" ? "all" : "pinned" }))}
        >
          Show only these
        </Button>
        <Button size="small" variant="ghost" onClick={() => setParams({ pinned: [], groups: [], subgraph: "all" })}>
          Unpin all
        </Button>
      </div>
      <PinnedNodes {...props} />
      <ul className="pins">
        {groups.map((group) => (
          <li key={group.name}>
            <button type="button" className="name" onClick={() => setParams({ node: groupId(group) })}>
              <b>{group.name}</b>, {group.nodes.length} nodes
            </button>
            <Button
              size="small"
              variant="ghost"
              onClick={() =>
                setParams((current) => ({
                  groups: current.groups.filter(({ name }) => name !== group.name),
                  node: null,
                }))
              }
            >
              Ungroup
            </Button>
          </li>
        ))}
      </ul>
    </section>
  );
}
