"""Numbers, names and links of reports."""

import math
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from mxd.backend.schemas.runs import Cell, Table
from mxd.trainer.evaluation.evaluation_metrics import MetricUnit
from mxd.trainer.utils.display import fixed

Format = Callable[[float], str]
SMALL = 0.001
"""Values below have an exponent, because four decimals would show one digit."""
AMOUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def in_unit(unit: MetricUnit, measured: Mapping[str, float | None] | None = None) -> Format:
    """Return the format of values in a unit: one digit of half the interval's width, or four of the value."""
    low, high = (measured or {}).get("low"), (measured or {}).get("high")
    width = 0.0 if low is None or high is None else high - low

    def form(value: float) -> str:
        if unit == "share":
            return f"{fixed(100 * value, 1)}\N{NO-BREAK SPACE}%"
        if unit == "count":
            return f"{value:,.1f}".removesuffix(".0").replace("-", "−")
        if value != 0 and abs(value) < SMALL:
            mantissa, power = f"{value:.1e}".split("e")
            return f"{mantissa}e{int(power)}".replace("-", "−")
        digits = math.ceil(-math.log10(width / 2)) if width else 3 - math.floor(math.log10(abs(value) or 1))
        return fixed(value, min(max(digits, 0), 4)) if value else "0"

    return form


def cell(
    measured: Mapping[str, float | None] | None, form: Format, *, is_best: bool = False, note: str = ""
) -> Cell | None:
    """Return the cell of a value and the ends of its interval, ``low`` and ``high``; None if it was not measured."""
    value = None if measured is None else measured["value"]
    if measured is None or value is None:
        return None
    low, high = measured.get("low"), measured.get("high")
    interval = span(low, high, form) if low is not None and high is not None and form(low) != form(high) else ""
    return Cell(value=value, low=low, high=high, text=form(value), interval=interval, is_best=is_best, note=note)


BEYOND = "* Above 100\N{NO-BREAK SPACE}%: with fixed experts, the layer predicts worse than the MLP’s mean output."


BOLD = "Bold: best of its layer, its 95\N{NO-BREAK SPACE}% interval is apart from all others."


def starred(key: str, found: Cell | None) -> Cell | None:
    """Mark a routing share above 100 %."""
    if found is None or key not in ("routing_share", "strict_routing_share") or found.value <= 1:
        return found
    return found.model_copy(update={"text": f"{found.text}*", "footnote": BEYOND})


def footnotes(table: Table) -> tuple[str, ...]:
    """Return what the asterisks and the bold numbers of a table mean."""
    cells = [one for row in table.rows for one in row.cells if one is not None]
    marks = dict.fromkeys(one.footnote for one in cells if one.footnote)
    return (*marks, *([BOLD] if any(one.is_best for one in cells) else []))


def span(low: float, high: float, form: Format) -> str:
    """Return the ends of a range in one unit, or the one value that both are."""
    return form(high) if form(low) == form(high) else f"{form(low).removesuffix('%').rstrip()} to {form(high)}"


def plural(number: int, noun: str) -> str:
    """Return ``1 unit``, ``2,000 units`` or ``3 classes``."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def rounded(value: float) -> str:
    """Return an amount such as ``342.1 M`` or ``8.2 k``."""
    for size, letter in AMOUNTS:
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + f" {letter}"
    return f"{value:,.0f}"


def last_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def method_title(method: str) -> str:
    return method.replace("-", " ").replace("mxd", "MxD")


def unit_name(method: str) -> str:
    """Return what a run's units are called: features of transcoders and autoencoders, experts of other layers."""
    return "features" if method.endswith(("transcoder", "autoencoder")) else "experts"


def in_units(text: str, method: str) -> str:
    """Return a text about experts, about features instead if the run has these."""
    if unit_name(method) == "experts":
        return text
    return re.sub(r"\b([Ee])xpert", lambda found: "Feature" if found[1] == "E" else "feature", text).replace(
        "an feature", "a feature"
    )


def run_page(run: str) -> str:
    return f"/runs/{quote(run, safe='')}"


def page(name: str, run: str, **query: str) -> str:
    return f"/{name}?{urlencode({'run': run, **query})}"
