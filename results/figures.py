"""Draw the figures of docs/results from the JSON tables: python results/figures.py (needs the docs extra)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from grid_tables import REPLACEMENTS
from matplotlib.axes import Axes
from numpy.typing import NDArray
from tables import RESULTS, read_columns

PAGES = RESULTS.parent / "docs" / "results"
GREY = "#808080"
"""Readable on a light and on a dark page."""
STYLE = {
    "svg.hashsalt": "mxd",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.prop_cycle": plt.cycler(color=["#2f6fde", "#d9822b", "#2a9d6e", "#b04a8b", "#8a7a1f", "#5a6acf", "#c0473d"]),
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], GREY),
    "legend.frameon": False,
    "savefig.transparent": True,
}


def read_table(name: str) -> dict[str, Any]:
    """A table with its columns and rows."""
    table: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return table


def rows(name: str) -> list[list[Any]]:
    """The rows of a table."""
    table: list[list[Any]] = read_table(name)["rows"]
    return table


def value(cell: Any) -> float:
    """The value of a cell with or without an interval."""
    return float(cell["value"] if isinstance(cell, dict) else cell)


def with_intervals(axes: Axes, x: Iterable[float], cells: list[Any], label: str, offset: float = 0.0) -> None:
    """A line with error bars through cells that have an interval."""
    y = np.array([cell["value"] for cell in cells])
    low, high = np.array([cell["interval"] for cell in cells]).T
    axes.errorbar(np.array(list(x)) + offset, y, yerr=[y - low, high - y], label=label, marker="o", ms=4, capsize=2)


def faithfulness(axes: Axes) -> None:
    """Loss increase against K for three methods."""
    table = [row for row in rows("faithfulness/equal-parameters") if row[0].endswith("3M")]
    for number, method in enumerate(dict.fromkeys(row[1] for row in table)):
        chosen = [row for row in table if row[1] == method]
        with_intervals(axes, [row[2] for row in chosen], [row[3] for row in chosen], method, 0.4 * (number - 1))
    axes.set(xlabel="K", ylabel="loss increase, nats", ylim=(0, None), xticks=[8, 32])


def routing_share(axes: Axes) -> None:
    """Dilution curves: loss increase against routing share."""
    table = rows("routing-share/partial")
    for model, layer in dict.fromkeys((row[0], row[1]) for row in table):
        chosen = [row for row in table if (row[0], row[1]) == (model, layer)]
        points = [(row[4], value(row[3])) for row in chosen]
        line = "-" if "5M" in model else "--"
        axes.plot(*zip(*points, strict=True), line, marker="o", ms=4, label=f"{layer} ({model.split(', ')[1]})")
    axes.set(xlabel="routing share", ylabel="loss increase, nats", xlim=(0, 1.05), ylim=(0, None))


def initialisation(axes: Axes) -> None:
    """Loss increase against routing share, one point per initialisation."""
    for name, _, loss, share, *_ in rows("initialisation/starts"):
        axes.plot(share, loss, "o", ms=6, label=name)
    axes.set(xlabel="routing share", ylabel="loss increase, nats", xlim=(0, 1.05), ylim=(0, 0.055))


def steering(axes: Axes) -> None:
    """Share of experts whose KL exceeds a threshold."""
    columns = read_columns(RESULTS / "raw" / "demo-v2" / "ablations.csv.gz")
    names = {
        "kl_amplified": "the expert",
        "kl_random_expert": "random expert, same density",
        "kl_random_direction": "random direction",
    }
    for key, name in names.items():
        ordered = np.sort(columns[key])[:: max(1, len(columns[key]) // 200)]
        axes.plot(ordered, 100 * (1 - np.arange(len(ordered)) / len(ordered)), label=name)
    axes.set(xscale="log", xlim=(3e-4, 0.3), xlabel="KL of the next token, nats", ylabel="experts above, %")


def probing(axes: Axes) -> None:
    """F1 per class of four kinds of units."""
    table = [row for row in rows("probing/classes") if not row[1].startswith("mean")]
    for number, name in enumerate(["MxD expert", "transcoder feature", "MLP neuron", "random gate"]):
        cells = [row[2 + number] for row in table]
        y = np.array([cell["value"] for cell in cells])
        low, high = np.array([cell["interval"] for cell in cells]).T
        x = np.arange(len(table)) + 0.18 * (number - 1.5)
        axes.errorbar(x, y, yerr=[y - low, high - y], fmt="o", ms=4, capsize=2, label=name)
    axes.set(ylabel="F1", ylim=(0.25, 1.0), xticks=range(len(table)))
    axes.set_xticklabels([row[1] for row in table])


def whole_model(axes: Axes) -> None:
    """Loss increase as more MLPs are replaced."""
    table = rows("whole-model/joint")
    for number, runs in enumerate(dict.fromkeys(row[1] for row in table)):
        chosen = [row for row in table if row[1] == runs]
        with_intervals(axes, [row[2] for row in chosen], [row[3] for row in chosen], runs)
        alone = [row[4] for row in chosen]
        axes.plot([row[2] for row in chosen], alone, ":", color=f"C{number}", label=f"{runs}, sum of each alone")
    axes.set(xlabel="MLPs replaced, first to last", ylabel="loss increase, nats", ylim=(0, None))


def any_k(axes: Axes) -> None:
    """Loss increase against K: nested, separate, and lowered without nesting."""
    table = rows("any-k/nested")
    ks = [row[1] for row in table]
    with_intervals(axes, ks, [row[2] for row in table], "one nested layer", -0.1)
    with_intervals(axes, ks, [row[4] for row in table], "four layers, one per K", 0.1)
    lowered = rows("any-k/lowered")
    axes.plot([row[1] for row in lowered], [row[2] for row in lowered], "x--", label="K = 16 layer at a smaller K")
    axes.set(xlabel="K", ylabel="loss increase, nats", ylim=(0, None), xscale="log", xticks=ks, xticklabels=ks)
    axes.minorticks_off()


def learning_curve(panels: NDArray[Any]) -> None:
    """Loss increase, routing share and dead experts against tokens, and loss against share."""
    table, names = rows("learning-curve/curve"), {2: "loss increase, nats", 4: "routing share", 6: "dead experts, %"}
    for method in dict.fromkeys(row[1] for row in table):
        chosen = [row for row in table if row[1] == method]
        tokens = [row[0] for row in chosen]
        for axes, column in zip(panels.flat[:2], (2, 4), strict=True):
            with_intervals(axes, tokens, [row[column] for row in chosen], method)
        panels.flat[2].plot([value(row[4]) for row in chosen], [value(row[2]) for row in chosen], "o-", ms=4)
        panels.flat[3].plot(tokens, [row[6] for row in chosen], "o-", ms=4)
    for axes, column in zip(panels.flat[[0, 1, 3]], names, strict=True):
        axes.set(xlabel="million tokens", xscale="log", ylabel=names[column], ylim=(0, None))
        axes.set(xticks=(ticks := [0.25, 1, 3, 8]), xticklabels=ticks)
        axes.minorticks_off()
    diluted = rows("learning-curve/partial")
    line = {"color": GREY, "ls": ":", "label": "default, part of the MLP left in place"}
    panels.flat[2].plot([row[2] for row in diluted], [value(row[1]) for row in diluted], **line)
    panels.flat[2].set(xlabel=names[4], ylabel=names[2], xlim=(0.4, 1.05), ylim=(0, None))
    panels.flat[2].legend(fontsize=7)


GRIDS = {"smollm2-135m": "SmolLM2", "small-gpt2": "GPT-2", "small-llama": "small\nLlama", "tiny-llama": "tiny\nLlama"}
TOKENS = {1: -0.27, 3: -0.09, 4: -0.04, 10: 0.09, 16: 0.16, 30: 0.27}
"""Millions of training tokens -> distance from the middle of a layer's column."""


def spread(cell: Any) -> tuple[float, float, float]:
    """The lower end, middle and upper end of an interval or a range; a single value is all three."""
    if not isinstance(cell, dict):
        return cell, cell, cell
    if "from" in cell:
        return cell["from"], (cell["from"] + cell["to"]) / 2, cell["to"]
    return cell["interval"][0], cell["value"], cell["interval"][1]


def over_grids(axes: Axes, column: str, left_out: str = "") -> None:
    """A column of the grids' tables: one place per layer, from few to many tokens, a colour per replacement."""
    layers: dict[str, int] = {}
    names = list(REPLACEMENTS.values())
    drawn = set()
    for grid, model in GRIDS.items():
        table = read_table(f"{grid}/grid")
        for row in table["rows"]:
            place = layers.setdefault(f"{model}\nlayer {row[0]}", len(layers))
            cell = row[table["columns"].index(column)]
            if cell is None or row[2] == left_out:
                continue
            low, middle, high = spread(cell)
            drawn.add(names.index(row[2]))
            color = f"C{names.index(row[2])}"
            x = place + TOKENS[round(row[1])]
            axes.errorbar(x, middle, yerr=[[middle - low], [high - middle]], color=color, marker="o", ms=4, capsize=2)
    for number in sorted(drawn):
        axes.plot([], [], "o-", ms=4, color=f"C{number}", label=names[number])
    axes.set(xticks=range(len(layers)), xticklabels=layers, xlim=(-0.5, len(layers) - 0.5), ylabel=column)


def shares(panels: NDArray[Any]) -> None:
    """Both routing shares of three language models."""
    for axes, column in zip(panels.flat, ("routing share", "strict routing share"), strict=True):
        over_grids(axes, column)
        axes.axhline(1, color=GREY, lw=0.5)
        axes.set(ylim=(0, 1.2))


def against_transcoders(axes: Axes) -> None:
    """Differences in loss increase from transcoders of equal parameters, of three language models."""
    over_grids(axes, "against the transcoder", left_out=REPLACEMENTS["uncentred"])
    axes.axhline(0, color=GREY, lw=0.5)
    axes.set(ylabel="loss increase minus the transcoder's, nats")


FIGURES = {
    "against-transcoders": against_transcoders,
    "faithfulness": faithfulness,
    "routing-share": routing_share,
    "initialisation": initialisation,
    "steering": steering,
    "probing": probing,
    "archive/whole-model": whole_model,
    "archive/any-k": any_k,
}
MULTIPLE = (
    ("learning-curve", learning_curve, (2, 2), (8.0, 5.6)),
    ("shares", shares, (2, 1), (6.4, 5.0)),
)
"""Figures of several panels: name, function, rows and columns, size in inches."""


def save(name: str, draw: Callable[[Any], None], shape: tuple[int, int], size: tuple[float, float]) -> None:
    """Draw a figure with a legend in its first panel. ``draw`` gets the axes, or an array of several."""
    figure, panels = plt.subplots(*shape, figsize=size, layout="constrained")
    draw(panels)
    first = np.ravel(panels)[0]
    if first.get_legend_handles_labels()[1]:
        first.legend(fontsize=7)
    figure.savefig(PAGES / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw every figure; the same data gives the same file."""
    plt.rcParams.update(STYLE)
    for name, draw in FIGURES.items():
        save(name, draw, (1, 1), (6.4, 3.2))
    for name, draw_panels, shape, size in MULTIPLE:
        save(name, draw_panels, shape, size)


if __name__ == "__main__":
    main()
