"""Attention of a circuit's edges as lines of text and as an HTML table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mxd.trainer.analysis.circuits.edge_results import EdgeAttention, HeadPart, ScoreSource
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitEdge, CircuitNode

ExplainedEdge = tuple[CircuitEdge, EdgeAttention]
SHOWN_HEADS = 3
SHOWN_SOURCES = 2
SHOWN_EXPERTS = 2


def node_name(circuit: Circuit, node: CircuitNode) -> str:
    """Return, for example, ``expert 560, layer 3, on ' girl'``."""
    return _name(circuit, node.kind, node.position, node.layer, node.expert)


def attention_lines(circuit: Circuit, explained: Sequence[ExplainedEdge]) -> list[str]:
    """Heads of each edge, and what made them look where they did."""
    lines = []
    for edge, attention in explained:
        ends = (node_name(circuit, circuit.nodes[end]) for end in (edge.source, edge.target))
        lines.append(f"{' → '.join(ends)}: adds {attention.weight:+.3f}, passed by")
        lines += [f"  {_head(circuit, part)}" for part in attention.heads[:SHOWN_HEADS]]
    return lines


def attention_table(circuit: Circuit, explained: Sequence[ExplainedEdge]) -> str:
    """Explained edges as an HTML table; empty without explained edges."""
    if not explained:
        return ""
    rows = [
        f"<tr><td>{escape(node_name(circuit, circuit.nodes[edge.source]))}</td>"
        f"<td>{escape(node_name(circuit, circuit.nodes[edge.target]))}</td><td class='n'>{attention.weight:+.3f}</td>"
        f"<td>{'<br>'.join(escape(_head(circuit, part)) for part in attention.heads[:SHOWN_HEADS])}</td></tr>"
        for edge, attention in explained
    ]
    head = "<tr><th>From</th><th>To</th><th class='n'>adds</th><th>passed by heads</th></tr>"
    return f"<h2>Attention</h2><table>{head}{''.join(rows)}</table>"


def _head(circuit: Circuit, part: HeadPart) -> str:
    query, key = (f"{circuit.tokens[place].text!r} (token {place})" for place in (part.query, part.key))
    text = f"head {part.head} of layer {part.layer}: {part.weight:+.3f}; looks from {query} to {key}, "
    text += f"pattern {part.pattern:.2f}"
    if part.score is None:
        return text
    sides = (("query", part.score.query_sources), ("key", part.score.key_sources))
    named = "; ".join(f"{side} by {', '.join(_sources(circuit, sources))}" for side, sources in sides)
    return f"{text}; score {part.score.above_mean:+.2f} above the mean, {named}"


def _sources(circuit: Circuit, sources: Sequence[ScoreSource]) -> list[str]:
    """The largest sources, and the largest experts behind them."""
    experts = [source for source in sources[SHOWN_SOURCES:] if source.kind == "expert"]
    return [_source(circuit, source) for source in (*sources[:SHOWN_SOURCES], *experts[:SHOWN_EXPERTS])]


def _source(circuit: Circuit, source: ScoreSource) -> str:
    if source.kind == "bias" or source.position is None:
        return f"biases {source.score:+.2f}"
    return f"{_name(circuit, source.kind, source.position, source.layer, source.expert)} {source.score:+.2f}"


def _name(circuit: Circuit, kind: str, position: int, layer: int | None, expert: int | None) -> str:
    on = repr(circuit.tokens[position].text)
    return {
        "target": f"next token {circuit.target.text!r}",
        "expert": f"expert {expert}, layer {layer}, on {on}",
        "error": f"what layer {layer} misses on {on}",
        "mlp": f"MLP of layer {layer} on {on}",
        "embedding": f"token {on}",
    }[kind]
