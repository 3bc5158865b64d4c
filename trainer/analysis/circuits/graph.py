"""Data classes of a circuit: tokens, nodes, edges, and the effects of ablating its experts. They need no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mxd.trainer.utils.html import ShadedToken, html_table, labelled_values, shaded_text
from mxd.trainer.utils.printable import ShortRepr
from mxd.trainer.utils.schema import documented

Kind = Literal["target", "expert", "error", "mlp", "embedding"]
"""Kinds of nodes. error: output of the MLP that the layer does not reconstruct. mlp: output of an MLP without a run.
embedding: input of the first block."""
Source = Literal["expert", "error", "mlp", "embedding", "bias"]
NodeKey = tuple[Kind, int, int | None, int | None]
"""Kind, position, layer and expert of a node."""

EXPERTS_SHOWN = 12
"""Number of experts listed in a notebook."""


class ExpertAtToken(NamedTuple):
    """An expert on one token."""

    run: str
    position: int
    expert: int


@documented
@dataclass(frozen=True, slots=True)
class AblationEffect:
    """Effect of ablating a group of experts on the target's logit minus the mean over the vocabulary."""

    predicted: float
    """Change predicted by the circuit."""
    measured: float
    """Change measured in the language model."""
    probability: float
    """Probability of the target under ablation."""


@documented
@dataclass(frozen=True)
class Agreement:
    """Agreement between predicted and measured effects. Values are null where they are undefined."""

    experts: int
    """Number of groups of experts compared."""
    correlation: float | None
    """Pearson correlation; null for fewer than five groups."""
    correlation_without_largest: float | None
    """Pearson correlation without the group with the largest prediction, on which the other can rest."""
    same_sign: float | None
    """Share of effects with the predicted sign."""
    same_sign_of_large: float | None
    """Share of effects with the predicted sign, among the half with the largest predictions."""
    slope: float | None
    """Least-squares slope of measured on predicted effects, through zero; null for fewer than five groups. Below 1,
    predictions are too large."""


@documented
@dataclass(frozen=True)
class NextToken:
    """A candidate for the next token."""

    id: int
    text: str
    probability: float
    """Probability under the language model; with errors dropped, under the model with the layers in place of MLPs."""
    logit: float
    """Logit minus the mean over the vocabulary."""


@documented
@dataclass(frozen=True)
class CircuitToken:
    """A token of the text."""

    id: int
    text: str
    start: bool
    """True for the start token that precedes every text."""


@documented
@dataclass(frozen=True)
class CircuitNode:
    """A node of the pruned graph."""

    kind: Kind
    position: int
    """Index of its token."""
    layer: int | None
    """Layer of an expert, error or mlp node."""
    run: str | None
    """Run of an expert or error node."""
    expert: int | None
    coefficient: float | None
    influence: float
    """Share of the target's total influence that passes through the node or originates in it; 1 for the target."""
    direct: float
    """Direct contribution to the target's logit, through no other expert; for the target, the logit."""
    effect: float
    """Contribution to the target's logit along all paths: the predicted decrease when the node is ablated."""
    traced: bool
    """True if its incoming edges were computed."""

    @property
    def key(self) -> NodeKey:
        """Identity of the node in the graph of its text."""
        return self.kind, self.position, self.layer, self.expert


@documented
@dataclass(frozen=True)
class CircuitEdge:
    """Direct contribution of a node to an expert's coefficient or to the target's logit."""

    source: int
    """Index in ``Circuit.nodes``."""
    target: int
    """Index in ``Circuit.nodes``."""
    weight: float
    """Size of the contribution, with sign."""
    influence: float
    """Share of the target's total influence that flows along the edge."""


@documented
@dataclass(frozen=True, repr=False)
class Circuit(ShortRepr):
    """Pruned attribution graph of a prompt."""

    runs: tuple[str, ...]
    """Names of the runs, in the order of their layers."""
    layers: tuple[int, ...]
    tokens: tuple[CircuitToken, ...]
    """Tokens up to the traced position, which is the last."""
    target: NextToken
    candidates: tuple[NextToken, ...]
    """Most probable next tokens."""
    nodes: tuple[CircuitNode, ...]
    """The target, then all other nodes by descending influence."""
    edges: tuple[CircuitEdge, ...]
    """Edges by descending influence."""
    direct: Mapping[Source, float]
    """Direct contributions to the target's logit, summed by kind of source. Their sum is the logit."""
    origins: Mapping[Source, float]
    """Shares of influence that originate in each kind of source. ``expert`` counts experts that were not traced."""
    num_nodes: int
    """Number of nodes before pruning."""
    retained_influence: float
    """Share of all nodes' influence that remains after pruning."""
    retained_edge_influence: float
    """Share of the influence between the remaining nodes that the edges represent."""
    rounding: float
    """Sum of all direct contributions minus the logit."""

    @property
    def experts(self) -> tuple[ExpertAtToken, ...]:
        """Experts of the graph, by descending influence."""
        return tuple(
            ExpertAtToken(node.run, node.position, node.expert)
            for node in self.nodes
            if node.run is not None and node.expert is not None
        )

    @property
    def edges_between_tokens(self) -> tuple[CircuitEdge, ...]:
        """Edges that attention carried from one token to another, by descending influence."""
        nodes = self.nodes
        return tuple(edge for edge in self.edges if nodes[edge.source].position != nodes[edge.target].position)

    def _repr_html_(self) -> str:
        """Text, target, direct contributions by kind, and the most influential experts."""
        contributions = labelled_values((kind, f"{value:+.2f}") for kind, value in self.direct.items())
        text = shaded_text(ShadedToken(token.text, 0.0) for token in self.tokens if not token.start)
        experts = [node for node in self.nodes if node.kind == "expert"][:EXPERTS_SHOWN]
        lines = [
            (
                f"<b>{node.expert}</b>",
                str(node.layer),
                shaded_text([ShadedToken(self.tokens[node.position].text, 0.0)]),
                f"{node.influence:.1%}",
                f"{node.effect:+.3f}",
            )
            for node in experts
        ]
        target = labelled_values([("next", self.target.text), ("logit above the mean", f"{self.target.logit:.2f}")])
        return (
            text
            + target
            + contributions
            + html_table(("expert", "layer", "on", "influence", "effect on the logit"), lines)
        )
