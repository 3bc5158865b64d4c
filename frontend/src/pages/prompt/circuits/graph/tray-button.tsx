/** Adds the expert of a node to the tray. */

import type { CircuitNode } from "@/api/types";
import { PlusButton } from "@/components/tray/plus-button";

/** Nothing for nodes that are no experts. */
export function TrayButton({ node }: { readonly node: CircuitNode }) {
  if (node.expert === null || node.run === null) return null;
  return <PlusButton expert={node.expert} run={node.run} />;
}
