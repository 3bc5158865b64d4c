"""Snapshots: what a page or a notebook shows, as self-contained HTML, as an HTML fragment or as Markdown.

The HTML has no script and loads nothing. Every text is escaped.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

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


def escape(text: str) -> str:
    """Escape a text for HTML, attributes included. Control characters, which XML forbids, become visible."""
    return html.escape(printable(text))


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
    """Two texts or more beside each other."""

    texts: Sequence[tuple[str, Sequence[Token]]]

    def html(self) -> str:
        columns = (f"<div><h2>{escape(name)}</h2>{_text(tokens)}</div>" for name, tokens in self.texts)
        return f'<section class="pair">{"".join(columns)}</section>'

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

    def html(self) -> str:
        """Return the steps from the largest fall to the largest rise, with the ends as text."""
        steps = [f"d{step}" for step in range(CHANGE_STEPS, 0, -1)] + [""] + [f"u{n + 1}" for n in range(CHANGE_STEPS)]
        boxes = "".join(f'<i class="{step}"></i>' for step in steps)
        return f'<p class="scale">{escape(self.name)} −{self.largest:g} {boxes} +{self.largest:g}</p>'

    def markdown(self) -> str:
        return ""


@dataclass(frozen=True)
class Lines:
    """Texts below each other, each with a short name."""

    title: str
    texts: Sequence[tuple[str, Sequence[Token]]]

    def html(self) -> str:
        lines = (f"<div><h2>{escape(name)}</h2>{_text(tokens)}</div>" for name, tokens in self.texts)
        title = f"<h2>{escape(self.title)}</h2>" if self.title else ""
        return f'<section class="lines">{title}{"".join(lines)}</section>'

    def markdown(self) -> str:
        """Return a table with one row per text, its peaks in bold."""
        rows = [(_markdown(name), "".join(map(_marked, tokens)).strip()) for name, tokens in self.texts]
        return _markdown_table(("", _markdown(self.title)), rows)


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.head)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        return f'<section class="wide"><table><tr>{head}</tr>{body}</table></section>'

    def markdown(self) -> str:
        return _markdown_table([*map(_markdown, self.head)], [[*map(_markdown, row)] for row in self.rows])


@dataclass(frozen=True)
class Histogram:
    """Counts in equal bins from 0 to ``high``, on a log scale."""

    title: str
    counts: Sequence[int]
    high: float

    def html(self) -> str:
        top = max(max(self.counts, default=0).bit_length(), 1)
        bars = "".join(
            f'<rect x="{place}" y="{100 - height}" width=".85" height="{height}"/>'
            for place, count in enumerate(self.counts)
            if (height := round(100 * count.bit_length() / top))
        )
        picture = (
            f'<svg viewBox="0 0 {len(self.counts)} 100" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(self.title)}">{bars}</svg>'
        )
        return f'<section class="bars"><h2>{escape(self.title)}, 0 to {self.high:g}</h2>{picture}</section>'

    def markdown(self) -> str:
        return ""


@dataclass(frozen=True)
class Grid:
    """Tokens as columns. ``heat``: one number per cell. ``layers``: several named boxes per cell."""

    kind: str
    columns: Sequence[Token]
    rows: Sequence[tuple[str, str, Mapping[int, Sequence[Token]]]]
    """Name, label, and the cells by column."""

    def html(self) -> str:
        head = "".join(
            f"<th{_attributes(token)}><span>{escape(_shown(token.text))}</span></th>" for token in self.columns
        )
        places = range(len(self.columns))
        body = "".join(
            f'<tr><th title="{escape(label)}"><b>{escape(name)}</b> {escape(label)}</th>'
            + "".join(f"<td>{''.join(map(_token, cells.get(place, ())))}</td>" for place in places)
            + "</tr>"
            for name, label, cells in self.rows
        )
        table = f'<table class="{self.kind}"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>'
        return f'<section class="wide">{table}</section>'

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

    def fragment(self) -> str:
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        command = f"<pre>{escape(self.origin.command)}</pre>" if self.origin.command else ""
        made = _facts([*self.origin.facts(), ("made with", "MxD Explorer")])
        return (
            f'<article class="mxd snapshot"><header><h1>{escape(self.title)}</h1>'
            f'<p class="sub">{escape(self.subtitle)}</p>'
            f"{_facts(self.facts)}</header>{''.join(block.html() for block in self.blocks)}"
            f"<footer>{note}{made}{command}</footer></article>"
        )

    def html(self) -> str:
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            f"<title>{escape(self.title)}</title><style>{CSS}\nbody.mxd {{ margin: 0; padding: 24px 16px; "
            "background: var(--bg); }\n.snapshot { margin: 0 auto; }</style></head>"
            f'<body class="mxd">{self.fragment()}</body></html>'
        )

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


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    entries = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f"<dl>{''.join(entries)}</dl>" if facts else ""


def _text(tokens: Iterable[Token]) -> str:
    return f'<p class="text">{"".join(map(_token, tokens))}</p>'


def _token(token: Token) -> str:
    if not token.shade and not token.tip:
        return escape(token.text)
    body = token.text.lstrip(" ")
    space = token.text[: len(token.text) - len(body)] if body else ""
    return f"{space}<span{_attributes(token)}>{escape(_shown(body or token.text))}</span>"


def _attributes(token: Token) -> str:
    names = " ".join(name for name in ("t", token.shade, "peak" if token.peak else "") if name)
    tip = f' tabindex="0" data-tip="{escape(token.tip)}"' if token.tip else ""
    return f' class="{names}"{tip}'


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
