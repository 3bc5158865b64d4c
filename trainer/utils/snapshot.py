"""Snapshots: what a page or a notebook shows, as self-contained HTML, as an HTML fragment or as Markdown.

The HTML has no script and loads nothing. Every text is escaped.
"""

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, Template
from jinja2.filters import do_mark_safe

from mxd.trainer.errors import UserError
from mxd.trainer.utils.display import printable
from mxd.trainer.utils.files import atomic_write, disk_errors

CSS = " ".join(
    " ".join((Path(__file__).parent / name).read_text("utf-8") for name in ("colours.css", "snapshot.css")).split()
)
ACTIVATION_STEPS, CHANGE_STEPS = 9, 4
"""Steps of the colour scales of the dashboard."""
CELLS_IN_MARKDOWN = 5
"""Cells of a row of a grid that Markdown lists, the strongest ones."""


class Token(NamedTuple):
    """A token, or another short text with a shade."""

    text: str
    shade: str = ""
    """CSS class of the shade: ``activation_shade`` or ``change_shade``."""
    tip: str = ""
    """Shown while the pointer is on it."""
    peak: bool = False
    """True if the token has an outline, so that colour is not the only mark."""
    value: float = 0.0
    """Size by which Markdown chooses the tokens that it lists."""


def plain(text: str) -> str:
    """Return a token alone: without spaces around it, or with symbols if it has nothing else."""
    return text.strip() or _shown(text.replace("\r", "")).replace("↵\n", "↵")


def activation_shade(share: float) -> str:
    """Return the shade of an activation, given as a share of the maximum."""
    return f"s{min(max(round(share * ACTIVATION_STEPS), 1), ACTIVATION_STEPS)}" if share > 0 else ""


def change_shade(share: float) -> str:
    """Return the shade of a change as in the dashboard: green above 0, purple below. 1 is the strongest shade, and a
    change below 0.1 has none."""
    step = min(math.ceil(abs(share) * CHANGE_STEPS - 1e-9), CHANGE_STEPS) if abs(share) >= 0.1 else 0
    return f"{'u' if share > 0 else 'd'}{step}" if step else ""


@dataclass(frozen=True)
class Pair:
    texts: Sequence[tuple[str, Sequence[Token]]]

    def markdown(self) -> str:
        parts = []
        for name, tokens in self.texts:
            lines = "".join(token.text for token in tokens).splitlines() or [""]
            # A zero-width space keeps lines from becoming headings and lists.
            quoted = "\n".join("> " + _LINE_START.sub("\\1&#8203;\\2", _markdown(line)) + "  " for line in lines)
            parts.append(f"**{_markdown(name)}**\n\n{quoted}")
        return "\n\n".join(parts)


@dataclass(frozen=True)
class ChangeScale:
    name: str
    largest: float
    """Change at the ends of the scale."""

    def markdown(self) -> str:
        return ""


@dataclass(frozen=True)
class Lines:
    title: str
    texts: Sequence[tuple[str, Sequence[Token]]]

    def markdown(self) -> str:
        """Return a table with one row per text, its peaks in bold."""
        rows = [(_markdown(name), "".join(map(_marked, tokens)).strip()) for name, tokens in self.texts]
        return _markdown_table(("", _markdown(self.title)), rows)


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        return _markdown_table([*map(_markdown, self.head)], [[*map(_markdown, row)] for row in self.rows])


@dataclass(frozen=True)
class Histogram:
    """Counts in equal bins from 0 to ``high``, on a log scale."""

    title: str
    counts: Sequence[int]
    high: float

    @property
    def bars(self) -> list[tuple[int, int]]:
        """Index and height in percent of each bin that is not empty."""
        top = max(max(self.counts, default=0).bit_length(), 1)
        heights = (round(100 * count.bit_length() / top) for count in self.counts)
        return [(place, height) for place, height in enumerate(heights) if height]

    def markdown(self) -> str:
        return ""


@dataclass(frozen=True)
class Grid:
    """Tokens as columns. ``heat``: one number per cell. ``layers``: several named boxes per cell."""

    kind: str
    columns: Sequence[Token]
    rows: Sequence[tuple[str, str, Mapping[int, Sequence[Token]]]]
    """Name, label, and the cells by column."""

    def markdown(self) -> str:
        rows = []
        for name, label, cells in self.rows:
            found = [(token, self.columns[place].text) for place, tokens in cells.items() for token in tokens]
            found.sort(key=lambda pair: -abs(pair[0].value))
            strongest = [f"{_markdown(plain(on))} ({_markdown(token.text)})" for token, on in found]
            rows.append((f"{_markdown(name)} {_markdown(label)}".strip(), ", ".join(strongest[:CELLS_IN_MARKDOWN])))
        return _markdown_table(("", "strongest on"), rows)


Block = Pair | ChangeScale | Lines | Table | Histogram | Grid
"""A part of a snapshot."""


@dataclass(frozen=True)
class Origin:
    """Model, weights and seeds of a snapshot, and the command that repeats it."""

    model: str = ""
    weights: Mapping[str, str] = field(default_factory=dict)
    """Run -> digest of its weights."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    """Name of a random choice -> its seed."""
    command: str = ""
    labels: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """(run, expert) -> label."""

    def label(self, run: str, expert: int) -> str:
        return self.labels.get((run, expert), "")

    def named(self, run: str, expert: int) -> str:
        label = self.label(run, expert)
        return f"{expert} ({label})" if label else str(expert)

    def titled(self, run: str) -> str:
        return f"{run}, {self.model}" if self.model else run

    def facts(self) -> list[tuple[str, str]]:
        runs = [pair for run, digest in self.weights.items() for pair in (("run", run), ("weights", digest))]
        return [*runs, *((f"seed of {drawn}", str(seed)) for drawn, seed in self.seeds.items())]


UNKNOWN = Origin()
"""Origin of a result without further information."""


@dataclass(frozen=True, repr=False)
class Snapshot:
    """A result to show. Notebooks render it, and ``save`` writes it to a file."""

    title: str
    subtitle: str
    blocks: Sequence[Block]
    facts: Sequence[tuple[str, str]] = ()
    note: str = ""
    origin: Origin = UNKNOWN

    def fragment(self, is_page: bool = False) -> str:
        values = {name: getattr(self, name) for name in ("title", "subtitle", "blocks", "note", "origin")}
        return _template().render(values, own_facts=self.facts, is_page=is_page)

    def html(self) -> str:
        return self.fragment(is_page=True)

    def markdown(self) -> str:
        origin = [f"{name} {value}" for name, value in self.origin.facts()]
        parts = [
            f"### {_markdown(self.title)}",
            _markdown(" · ".join([self.subtitle, *(f"{name} {value}" for name, value in self.facts)])),
            *(block.markdown() for block in self.blocks),
            _markdown(" · ".join([*origin, "made with MxD Explorer"])),
        ]
        if command := self.origin.command:
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", command)), 0)
            parts.append(f"{fence}sh\n{command}\n{fence}")
        return "\n\n".join(part for part in parts if part) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write the snapshot to a ``.html`` or ``.md`` file. Raises UserError if it is another kind of file."""
        path = Path(path)
        if path.suffix not in (".html", ".md"):
            raise UserError(f"Unsupported snapshot file: '{path}'. Supported file types: .html, .md.")
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, self.html() if path.suffix == ".html" else self.markdown())
        return path

    def __repr__(self) -> str:
        return f"Snapshot({self.title!r})"

    def _repr_html_(self) -> str:
        return f"<style>{CSS}</style>{self.fragment()}"


@cache
def _template() -> Template:
    """Every text is escaped, attributes included. Control characters, which XML forbids, become visible."""

    def escaped(value: object) -> object:
        is_markup = hasattr(value, "__html__")
        return value if is_markup else do_mark_safe(html.escape(printable(str(value))))

    environment = Environment(autoescape=True, finalize=escaped)
    environment.filters |= {"shown": _shown, "kind": lambda block: type(block).__name__}
    # Line breaks and indentation are the template's own.
    source = re.sub(r"\n\s*", "", (Path(__file__).parent / "snapshot.html").read_text("utf-8"))
    return environment.from_string(source, {"css": do_mark_safe(CSS), "steps": CHANGE_STEPS})


def _shown(text: str) -> str:
    """Text of a shaded token, with symbols if it is white space, which carry the shade."""
    return text if text.strip() else text.replace(" ", "␣").replace("\t", "⇥").replace("\n", "↵\n")


# ---------------------------------------------------------------- Markdown

_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_LINE_START = re.compile(r"^(\s*)([#+-]|\d+[.)])")


def _markdown(text: str) -> str:
    """Escape Markdown and HTML. Line breaks become spaces."""
    return _SPECIAL.sub(r"\\\1", html.escape(printable(" ".join(text.splitlines())), quote=False))


def _marked(token: Token) -> str:
    """Escape a token; a peak is bold."""
    text = token.text.replace("\n", " ")
    body = text.strip()
    if not token.peak or not body:
        return _markdown(text)
    before, _, after = text.partition(body)
    return f"{before}**{_markdown(body)}**{after}"


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
