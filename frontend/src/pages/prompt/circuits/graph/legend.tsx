/** What colour, width and order mean in the graph. */

import "./legend.css";

const LEGEND = [
  [
    "Box colour",
    "whether the node raises (+) or lowers (−) the explained logit, over all paths. No colour: a faded layer, an MLP or an error node.",
  ],
  ["Line colour", "whether the source raises (solid) or lowers (dashed) the node above it."],
  ["Line width", "share of the influence. Boxes have one size; in a group, the most influential is first."],
  [
    "Box text",
    "label, or the token that the expert promotes (→) or fires on (on). “At” names the token of the prompt. Dotted: error nodes, and MLPs without a run.",
  ],
  [
    "≠, ×",
    "ablation contradicts the box: the opposite sign, or an effect of so many times the predicted size, beyond a factor of 3. “2 ≠”: so do two experts of a supernode.",
  ],
] as const;

export function Legend() {
  return (
    <dl className="circuit-legend" aria-label="Legend">
      {(["up", "down"] as const).map((direction) => (
        <div key={direction} className="key">
          <dt className={`cnode ${direction}`}>{direction === "up" ? "+" : "−"}</dt>
          <dd>
            <svg width="34" height="8" aria-hidden="true" className="circuit-edges">
              <path className={direction} d="M1 4H33" strokeWidth="2" />
            </svg>
            {direction === "up" ? "raises" : "lowers"}
          </dd>
        </div>
      ))}
      {LEGEND.map(([name, meaning]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{meaning}</dd>
        </div>
      ))}
    </dl>
  );
}
