"""Mutated bundles: each is refused with one sentence, or opens and is served without an error of the server.

``make test`` tries a sample, ``make fuzz`` all.
"""

import base64
import copy
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_args

from fastapi.testclient import TestClient

from mxd.backend.api.app import build_api, create_app
from mxd.backend.export.bundles.pack import OF_PEOPLE, unpack
from mxd.backend.schemas.experts import SimilarBy
from mxd.backend.schemas.runs import FigureName
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError
from tests.helpers.formats.bundles import Entries, write_bundle
from tests.helpers.fuzzing import CASES, WANTED

FEW = 6
VALUES = {"run": "small", "other": "small", "expert": "3", "list_id": "1"}
SKIPPED = ("/events", "/options", "/map", "/bundle")
"""Ends of the paths of streams that end when their client leaves, and of what reads no rows or all of them."""
QUERIES: dict[str, tuple[str, ...]] = {
    "experts": (
        "?limit=200",
        "?search=fox",
        "?search=xq",
        "?sort=entropy&order=asc&limit=3",
        "?tag=animals",
        "?list=1",
    ),
    "similar": tuple(f"?by={by}" for by in get_args(SimilarBy)),
    "search": ("?text=fox", "?text=the"),
    "examples": ("?limit=100", "?bin=1"),
    "{name}": tuple(f"{name}?run=small&expert=3" for name in get_args(FigureName)),
}
"""Last part of a path -> names and queries to try."""
OF_USERS = {f"database/{name}.jsonl" for name in OF_PEOPLE}
LONGEST_SENTENCE = 600
ONCE_BAD = {
    "database/evaluations.jsonl:result.k=-1",
    "database/evaluations.jsonl:result.loss_increase.value=None",
    "database/probes.jsonl:result.kinds.experts.classes.de.top1.experts=[]",
    "database/probes.jsonl:result.kinds.experts.classes.de.top1.f1=None",
    "run/run.json:text.dataset='xxxxxxxxxxxxxxxxxxx…",
}
"""Mutations that a page once answered with an error."""


def test_mutated_bundles(entries: Entries, tmp_path: Path) -> None:
    tried = list(mutations(entries))
    assert len(tried) >= 193
    assert {mutation.name for mutation in tried} >= ONCE_BAD
    if WANTED is None:
        tried = [*tried[:: len(tried) // FEW], *(mutation for mutation in tried if mutation.name in ONCE_BAD)]
    bad = [f"{mutation.name}: {problem}" for mutation in tried for problem in _problems(entries, mutation, tmp_path)]
    assert not bad, "\n".join(bad)


def _problems(entries: Entries, mutation: "Mutation", folder: Path) -> Iterator[str]:
    """Everything that goes wrong with a mutated bundle."""
    with CASES.timed(), TemporaryDirectory(dir=folder) as place:
        file = write_bundle(Path(place) / "bad.mxd", entries | {mutation.entry: mutation.content()})
        try:
            opened = unpack(file, Path(place) / "opened", None)
        except UserError as error:
            if "\n" in str(error) or len(str(error)) > LONGEST_SENTENCE:
                yield f"says {str(error)[:300]!r}"
        except Exception as error:  # noqa: BLE001 - whatever is raised is a finding
            yield f"raises {type(error).__name__}: {str(error)[:200]}"
        else:
            yield from _failures(opened.folder, of_people=mutation.entry in OF_USERS)


def _failures(data: Path, of_people: bool) -> Iterator[str]:
    """Requests that a server on a data folder answers with 5xx. Figures do not show what users write."""
    with TestClient(create_app(Settings(data=data, device="cpu")), raise_server_exceptions=False) as client:
        for path in _paths(client):
            if of_people and "/figures/" in path:
                continue
            answer = client.get(path)
            if answer.status_code >= 500 and answer.status_code != 503:
                yield f"GET {path} -> {answer.status_code} {answer.text[:200]}"
        answer = client.patch("/api/runs/small/experts/3", json={"label": "another"})
        if answer.status_code >= 500 and answer.status_code != 503:
            yield f"PUT label -> {answer.status_code}"


def _paths(client: TestClient) -> Iterator[str]:
    """Paths of everything that can be read about the run of the bundle."""
    found = client.get("/api/runs/small/sessions")
    saved = found.json()["sessions"] if found.status_code == 200 else []
    values = defaultdict(lambda: "unknown", VALUES, id=saved[0]["id"] if saved else "abcdefg")
    for path, methods in build_api().openapi()["paths"].items():
        if "get" in methods and not path.endswith(SKIPPED):
            for query in QUERIES.get(path.rpartition("/")[2], ("",)):
                yield path.replace("{name}", query.partition("?")[0]).format_map(values) + query[query.find("?") :]


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


class Mutation(NamedTuple):
    """A change of one value of a bundle's entry, or of the rows of a table."""

    name: str
    entry: str
    content: Callable[[], bytes]
    """The changed entry."""


def mutations(entries: Entries) -> Iterator[Mutation]:
    tables = [name for name in sorted(entries) if _is_table(name) and entries[name]]
    for name in (*tables, *(name for name in RUN_FILES if name in entries)):
        first, *others = entries[name].splitlines() if _is_table(name) else [entries[name]]
        document = json.loads(first)
        for place, value in _values(document):
            text = f"{value!r}" if len(f"{value!r}") < 24 else f"{value!r}"[:20] + "…"
            content = partial(_changed, document, place, value, others)
            yield Mutation(f"{name}:{'.'.join(map(str, place))}={text}", name, content)
    for name in tables:
        for rows in (slice(1, None), slice(0, 1), slice(0, 0)):
            lines = entries[name].splitlines(keepends=True)[rows]
            yield Mutation(f"{name}:{rows}", name, partial(b"".join, lines))


def _is_table(name: str) -> bool:
    return name.startswith("database/")


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


def _changed(document: Any, place: Place, value: Any, others: Sequence[bytes]) -> bytes:
    changed = copy.deepcopy(document)
    inner = changed
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    text = json.dumps(changed).replace(json.dumps(DEEP), "[" * 40 + "]" * 40)
    return b"\n".join([text.encode(), *others])
