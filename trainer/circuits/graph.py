"""What a circuit is: its nodes, its edges, and how much of the whole they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from trainer.highlighting import Shaded, figures, rows, shaded_text

Kind = Literal["target", "expert", "error", "mlp", "embedding"]
"""error: what a layer misses of its MLP. mlp: an MLP without a run, whole. embedding: what enters the first block."""
Source = Literal["expert", "error", "mlp", "embedding", "bias"]

SHOWN = 12
"""Experts in a notebook."""


class Switch(NamedTuple):
    """An expert on one token."""

    run: str
    position: int
    expert: int


@dataclass(frozen=True)
class NextToken:
    """A token that may come next."""

    id: int
    text: str
    probability: float
    """Of the language model, or with errors dropped of the replaced one."""
    logit: float
    """Less the mean over the vocabulary."""


@dataclass(frozen=True)
class CircuitToken:
    """A token of the text."""

    id: int
    text: str
    start: bool
    """Put in front by us."""


@dataclass(frozen=True)
class CircuitNode:
    """A node that is kept."""

    kind: Kind
    position: int
    layer: int | None
    """Of expert, error and mlp."""
    run: str | None
    """Of expert and error."""
    expert: int | None
    coefficient: float | None
    influence: float
    """Share of what reaches the target that passes through it or begins there; 1 for the target."""
    direct: float
    """What it adds to the target's logit past no other expert; for the target, the logit."""
    effect: float
    """The same along all paths: by how much switching it off is predicted to lower the logit."""
    followed: bool
    """Whether its own causes were looked for: edges into it are only known then."""


class Edge(NamedTuple):
    """What one node adds to the value of another: the coefficient of an expert, the logit of the target."""

    source: int
    """Places in ``Circuit.nodes``."""
    target: int
    weight: float
    influence: float
    """Share of what reaches the target that goes along it."""


@dataclass(frozen=True)
class Circuit:
    """The graph of a prompt, pruned."""

    runs: tuple[str, ...]
    """By layer."""
    layers: tuple[int, ...]
    tokens: tuple[CircuitToken, ...]
    """Up to the traced position, which is the last."""
    target: NextToken
    candidates: tuple[NextToken, ...]
    """The most probable next tokens."""
    nodes: tuple[CircuitNode, ...]
    """The target first, then by influence."""
    edges: tuple[Edge, ...]
    """Most influence first."""
    direct: Mapping[Source, float]
    """What the logit is the sum of, by kind of source."""
    begins: Mapping[Source, float]
    """Where paths to the target begin, as shares; ``expert`` are those that were not followed."""
    num_nodes: int
    """Before pruning."""
    kept_influence: float
    """Share of the nodes' influence that the kept ones hold."""
    kept_edges: float
    """Share of the influence between kept nodes that the edges hold."""
    rounding: float
    """By how much all parts together miss the logit."""

    @property
    def experts(self) -> tuple[Switch, ...]:
        """The kept experts, most influence first."""
        return tuple(
            Switch(node.run, node.position, node.expert)
            for node in self.nodes
            if node.run is not None and node.expert is not None
        )

    def _repr_html_(self) -> str:
        """What the logit is made of, and the most influential experts."""
        parts = figures((kind, f"{value:+.2f}") for kind, value in self.direct.items())
        text = shaded_text(Shaded(token.text, 0.0) for token in self.tokens if not token.start)
        kept = [node for node in self.nodes if node.kind == "expert"][:SHOWN]
        lines = [
            (
                f"<b>{node.expert}</b>",
                str(node.layer),
                shaded_text([Shaded(self.tokens[node.position].text, 0.0)]),
                f"{node.influence:.1%}",
                f"{node.effect:+.3f}",
            )
            for node in kept
        ]
        said = figures([("next", self.target.text), ("logit above the mean", f"{self.target.logit:.2f}")])
        return text + said + parts + rows(("expert", "layer", "on", "influence", "effect on the logit"), lines)
