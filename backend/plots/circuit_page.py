"""A circuit as one HTML file: the graph as SVG, its nodes and edges as tables. No scripts, no external resources.

Tokens run left to right and layers bottom to top. Edges that raise the target's logit are green, solid and marked +.
Edges that lower it are purple, dashed and marked −.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from mxd.backend.plots.attention_text import ExplainedEdge, attention_table, node_name
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitNode

STYLE = """
:root { color-scheme: light dark; --up: light-dark(#1c7a52, #6ed6a6); --down: light-dark(#733ea4, #ceacf7);
  --paper: light-dark(#fff, #151819); --ink: light-dark(#16191a, #e9eeef); }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--paper); color: var(--ink); }
.wide { overflow-x: auto; }
svg text { font: 12px ui-monospace, monospace; fill: var(--ink); text-anchor: middle; }
svg text.row { text-anchor: start; font-family: system-ui, sans-serif; }
path { fill: none; opacity: .5; } path.up { stroke: var(--up); }
path.down { stroke: var(--down); stroke-dasharray: 5 4; }
.node { fill: var(--paper); stroke-width: 1.5; } .node.up { stroke: var(--up); } .node.down { stroke: var(--down); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; margin: 1rem 0; }
td, th { padding: .15rem .9rem .15rem 0; text-align: left; border-bottom: 1px solid #8884; }
td.n, th.n { text-align: right; } td.up { color: var(--up); } td.down { color: var(--down); }
"""
MAX_TOKENS = 128
"""In longer texts, tokens without nodes are left out."""
CHARACTER, PITCH, ACROSS, MARGIN, GUTTER, TOKEN_ROW = 7.3, 28, 4, 12, 78, 44
SMALLEST, LARGEST = 6.0, 12.0


class _Placed(NamedTuple):
    x: float
    y: float
    half: float
    """Baseline of a node's text, as a fraction of its height."""


def circuit_page(circuit: Circuit, explained: Sequence[ExplainedEdge] = ()) -> str:
    """Return the whole file, with the attention of the explained edges."""
    target = circuit.target
    made = ", ".join(f"{kind} {value:+.2f}" for kind, value in circuit.direct.items())
    text = "".join(token.text for token in circuit.tokens if not token.start)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>Circuit of {escape(repr(target.text))}</title><style>{STYLE}</style>"
        f"<h1>Attribution graph of {escape(repr(target.text))}</h1><p>{escape(text)} <b>{escape(target.text)}</b></p>"
        f"<p>Probability {target.probability:.1%}, logit {target.logit:.2f} above the mean: {made}. "
        f"{len(circuit.nodes) - 1} of {circuit.num_nodes:,} nodes hold {circuit.retained_influence:.0%} of the "
        f"influence, {len(circuit.edges)} edges {circuit.retained_edge_influence:.0%} of that between them.</p>"
        f"<div class='wide'>{_drawn(circuit)}</div>{_nodes(circuit)}{_edges(circuit)}"
        f"{attention_table(circuit, explained)}</html>"
    )


def _drawn(circuit: Circuit) -> str:
    cells: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for index, node in enumerate(circuit.nodes):
        cells[_row(node), node.position].append(index)
    columns, width = _columns(circuit, cells)
    rows, height = _rows(circuit, cells)
    placed = _placed(circuit, cells, columns, rows)
    names = "".join(f"<text class='row' x='0' y='{y + 4:.0f}'>{_row_name(row)}</text>" for row, y in rows.items())
    shown = _shown_tokens(circuit)
    words = "".join(
        f"<text x='{columns[place]:.0f}' y='{rows[-1] + 4:.0f}'>{escape(token.text.strip() or repr(token.text))}</text>"
        for place, token in enumerate(circuit.tokens)
        if place in shown
    )
    return (
        f"<svg width='{width:.0f}' height='{height:.0f}' role='img' aria-label='The graph; the tables below hold it'>"
        f"{names}{_lines(circuit, placed)}{words}{_shapes(circuit, placed)}</svg>"
    )


def _shown_tokens(circuit: Circuit) -> set[int]:
    """Positions of the tokens that get a column."""
    if len(circuit.tokens) <= MAX_TOKENS:
        return set(range(len(circuit.tokens)))
    return {node.position for node in circuit.nodes}


def _row(node: CircuitNode) -> int:
    """Row of a node: its layer, -1 for tokens, above all layers for the target."""
    return 10**6 if node.kind == "target" else -1 if node.layer is None else node.layer


def _row_name(row: int) -> str:
    return "Tokens" if row == -1 else "Next token" if row == 10**6 else f"Layer {row}"


def _columns(circuit: Circuit, cells: dict[tuple[int, int], list[int]]) -> tuple[list[float], float]:
    """Return the centre of each token's column and the total width."""
    x, middles = float(GUTTER), []
    shown = _shown_tokens(circuit)
    for place, token in enumerate(circuit.tokens):
        if place not in shown:
            middles.append(x)
            continue
        across = max([min(ACROSS, len(nodes)) for (_, position), nodes in cells.items() if position == place] or [0])
        words = [token.text, circuit.target.text] if place == len(circuit.tokens) - 1 else [token.text]
        wide = max(*(len(word) * CHARACTER + 14 for word in words), across * PITCH, 20.0)
        middles.append(x + wide / 2)
        x += wide
    return middles, x + MARGIN


def _rows(circuit: Circuit, cells: dict[tuple[int, int], list[int]]) -> tuple[dict[int, float], float]:
    """Return the centre of each row from the top down and the total height."""
    y, middles = 0.0, {}
    for row in sorted({_row(node) for node in circuit.nodes} | {-1}, reverse=True):
        most = max([len(nodes) for (each, _), nodes in cells.items() if each == row] or [1])
        high = TOKEN_ROW if row in (-1, 10**6) else -(-most // ACROSS) * PITCH + 24
        middles[row] = y + high / 2
        y += high
    return middles, y


def _placed(
    circuit: Circuit, cells: dict[tuple[int, int], list[int]], columns: Sequence[float], rows: dict[int, float]
) -> dict[int, _Placed]:
    most = max([node.influence for node in circuit.nodes[1:]] or [1.0])
    nodes = {}
    for (row, position), members in cells.items():
        lines = -(-len(members) // ACROSS)
        for place, index in enumerate(members):
            line, column = divmod(place, ACROSS)
            across = min(ACROSS, len(members) - line * ACROSS)
            x = columns[position] + (column - (across - 1) / 2) * PITCH
            y = rows[row] + (line - (lines - 1) / 2) * PITCH
            radius = SMALLEST + (LARGEST - SMALLEST) * min(1.0, circuit.nodes[index].influence / most) ** 0.5
            nodes[index] = _Placed(x, y, LARGEST if row in (-1, 10**6) else radius)
    return nodes


def _lines(circuit: Circuit, placed: dict[int, _Placed]) -> str:
    most = max([edge.influence for edge in circuit.edges] or [1.0])
    lines = []
    for edge in reversed(circuit.edges):
        start, end = placed[edge.source], placed[edge.target]
        top, bottom = start.y - start.half, end.y + end.half
        bend = max(14.0, abs(top - bottom) * 0.45)
        bends = f"{start.x:.1f} {top - bend:.1f} {end.x:.1f} {bottom + bend:.1f}"
        path = f"M{start.x:.1f} {top:.1f}C{bends} {end.x:.1f} {bottom:.1f}"
        title = f"{node_name(circuit, circuit.nodes[edge.source])} → {node_name(circuit, circuit.nodes[edge.target])}"
        thick = 0.8 + 4.5 * (edge.influence / most) ** 0.5
        lines.append(
            f"<path class='{_side(edge.weight)}' stroke-width='{thick:.1f}' d='{path}'>"
            f"<title>{escape(title)}: {edge.weight:+.3f}</title></path>"
        )
    return "".join(lines)


def _shapes(circuit: Circuit, placed: dict[int, _Placed]) -> str:
    shapes = []
    for index, node in enumerate(circuit.nodes):
        at, side = placed[index], _side(node.effect)
        title = f"<title>{escape(node_name(circuit, node))}: effect {node.effect:+.3f}</title>"
        if node.kind == "target":
            shapes.append(
                f"<text x='{at.x:.1f}' y='{at.y + 4:.1f}' font-weight='600'>{escape(circuit.target.text)}</text>"
            )
        elif node.kind == "expert":
            shapes.append(
                f"<circle class='node {side}' cx='{at.x:.1f}' cy='{at.y:.1f}' r='{at.half:.1f}'>{title}</circle>"
            )
        elif node.layer is not None:
            box = f"x='{at.x - at.half:.1f}' y='{at.y - at.half:.1f}' width='{2 * at.half:.1f}'"
            box += f" height='{2 * at.half:.1f}'"
            shapes.append(f"<rect class='node {side}' stroke-dasharray='2 2' {box}>{title}</rect>")
        if node.layer is not None:
            shapes.append(f"<text x='{at.x:.1f}' y='{at.y + 4:.1f}'>{'−' if node.effect < 0 else '+'}</text>")
    return "".join(shapes)


def _nodes(circuit: Circuit) -> str:
    head = "<tr><th>Node</th><th class='n'>influence</th><th class='n'>direct</th><th class='n'>effect</th></tr>"
    lines = [
        f"<tr><td>{escape(node_name(circuit, node))}</td><td class='n'>{node.influence:.1%}</td>"
        f"{_signed(node.direct)}{_signed(node.effect)}</tr>"
        for node in circuit.nodes[1:]
    ]
    return f"<h2>Nodes</h2><table>{head}{''.join(lines)}</table>"


def _edges(circuit: Circuit) -> str:
    head = "<tr><th>From</th><th>To</th><th class='n'>adds</th><th class='n'>influence</th></tr>"
    lines = [
        f"<tr><td>{escape(node_name(circuit, circuit.nodes[edge.source]))}</td>"
        f"<td>{escape(node_name(circuit, circuit.nodes[edge.target]))}</td>"
        f"{_signed(edge.weight)}<td class='n'>{edge.influence:.1%}</td></tr>"
        for edge in circuit.edges
    ]
    return f"<h2>Edges</h2><table>{head}{''.join(lines)}</table>"


def _signed(value: float) -> str:
    return f"<td class='n {_side(value)}'>{value:+.3f}</td>"


def _side(value: float) -> str:
    return "down" if value < 0 else "up"
