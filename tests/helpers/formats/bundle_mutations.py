"""Mutations of a bundle: every value of one row per table, and of the JSON files of the run, changed in several ways.

The list is the same each time. Each mutated bundle has a manifest with correct sizes and checksums.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.helpers.formats.bundles import Entries

Place = tuple[str | int, ...]
RUN_FILES = ("run/run.json", "run/layer.json", "run/metrics.json", "run/units.json")
BYTES = {"token_ids", "active", "counts", "experts", "sequences"}
DEEP = "deep"
"""Stands for a value nested 40 levels deep, which is written as text."""
FEW_PER_KIND = 1
"""Values of a kind inside one JSON document that are mutated; the others of the kind are read by the same code."""
WHOLE: tuple[Any, ...] = (-1, 10**12, None)
NUMBERS: tuple[Any, ...] = (-1, float("nan"), 1e308, None)
TEXTS: tuple[Any, ...] = ("", "\ud800", "x" * 5_000_000)
LISTS: tuple[Any, ...] = ([], [[1]], [None] * 5000)
MAPPINGS: tuple[Any, ...] = ({}, {"1": None}, DEEP)


@dataclass(frozen=True)
class Mutation:
    """A change of one value in one document of a bundle."""

    entry: str
    place: Place
    value: Any

    @property
    def name(self) -> str:
        """Readable name."""
        text = f"{self.value!r}"
        return f"{self.entry}:{'.'.join(map(str, self.place))}={text if len(text) < 24 else text[:20] + '…'}"

    def apply(self, entries: Entries) -> Entries:
        """Return the changed entries."""
        first, *others = _documents(entries, self.entry)
        changed = _changed(first, self.place, self.value)
        lines = [_text(changed), *(_text(it) for it in others)] if _is_table(self.entry) else [_text(changed)]
        return entries | {self.entry: "\n".join(lines).encode()}


@dataclass(frozen=True)
class Rows:
    """A change of the rows of a table: the first one deleted, or all but the first one."""

    entry: str
    start: int
    stop: int | None

    @property
    def name(self) -> str:
        """Readable name."""
        return f"{self.entry}:rows {self.start}:{self.stop}"

    def apply(self, entries: Entries) -> Entries:
        """Return the changed entries."""
        lines = entries[self.entry].splitlines(keepends=True)[self.start : self.stop]
        return entries | {self.entry: b"".join(lines)}


def mutations(entries: Entries) -> list[Mutation | Rows]:
    """All mutations of a bundle."""
    tables = [name for name in sorted(entries) if _is_table(name) and entries[name]]
    found: list[Mutation | Rows] = []
    for name in (*tables, *(name for name in RUN_FILES if name in entries)):
        found += [Mutation(name, place, value) for place, value in _values(_documents(entries, name)[0])]
    return found + [Rows(name, start, stop) for name in tables for start, stop in ((1, None), (0, 1), (0, 0))]


def _is_table(name: str) -> bool:
    return name.startswith("database/")


def _documents(entries: Entries, name: str) -> list[Any]:
    if not _is_table(name):
        return [json.loads(entries[name])]
    return [json.loads(line) for line in entries[name].splitlines()]


def _values(document: Any) -> Iterator[tuple[Place, Any]]:
    """Mutated values of a document by their place."""
    seen: dict[str, int] = {}
    for place, value in _places(document, ()):
        kind = f"{len(place)}{_column(place)}{type(value).__name__}"
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= FEW_PER_KIND:
            for other in _others(place, value):
                yield place, other


def _column(place: Place) -> str:
    """The column that a value is in and, of a result, its field. Keys that are numbers are experts or rows."""
    if str(place[0]).isdecimal():
        return ""
    return ".".join(map(str, place[: 2 if place[0] == "result" else 1]))


def _places(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if place:
        yield place, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:2]):
            yield from _places(item, (*place, index))


def _others(place: Place, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) and place[-1] in BYTES:
        content = base64.b64decode(value)
        changed = (content[:-1], b"", b"\xff" * len(content), content + content)
        return tuple(base64.b64encode(it).decode() for it in changed)
    if isinstance(value, str):
        later = ("9999-12-31T23:59:59.999999",) if value[:2] == "20" and "T" in value else ()
        return TEXTS + later
    if isinstance(value, list):
        return LISTS
    if isinstance(value, dict):
        return MAPPINGS
    return WHOLE if isinstance(value, int) else NUMBERS


def _changed(document: Any, place: Place, value: Any) -> Any:
    changed = copy.deepcopy(document)
    inner = changed
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return changed


def _text(document: Any) -> str:
    return json.dumps(document).replace(json.dumps(DEEP), "[" * 40 + "]" * 40)
