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
from typing import Any, get_args

from fastapi.testclient import TestClient

from mxd.backend.api.app import build_api, create_app
from mxd.backend.export.bundles.pack import OF_PEOPLE, unpack
from mxd.backend.schemas.experts import SimilarBy
from mxd.backend.schemas.runs import FigureName
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError
from tests.backend.export.bundles.conftest import Entries, write_bundle
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
    tried = dict(mutations(entries))
    assert len(tried) >= 193
    names = list(tried) if WANTED else {*list(tried)[:: len(tried) // FEW], *ONCE_BAD}
    bad = [f"{name}: {problem}" for name in names for problem in problems(entries, *tried[name], tmp_path)]
    assert not bad, "\n".join(bad)


def problems(entries: Entries, entry: str, content: Callable[[], bytes], folder: Path) -> Iterator[str]:
    """Everything that goes wrong with a bundle of which an entry was changed."""
    with CASES.timed(), TemporaryDirectory(dir=folder) as place:
        file = write_bundle(Path(place) / "bad.mxd", entries | {entry: content()})
        try:
            opened = Path(place) / "opened"
            unpack(file, opened, None)
        except UserError as error:
            if "\n" in str(error) or len(str(error)) > LONGEST_SENTENCE:
                yield f"says {str(error)[:300]!r}"
        except Exception as error:  # noqa: BLE001 - whatever is raised is a finding
            yield f"raises {type(error).__name__}: {str(error)[:200]}"
        else:
            yield from failures(opened, of_people=entry in OF_USERS)


def failures(data: Path, of_people: bool) -> Iterator[str]:
    """Requests that a server on a data folder answers with 5xx. Figures do not show what users write."""
    with TestClient(create_app(Settings(data=data, device="cpu")), raise_server_exceptions=False) as client:
        requests: list[tuple[str, str, Any]] = [("GET", path, None) for path in paths(client)]
        requests = [it for it in requests if not (of_people and "/figures/" in it[1])]
        for method, path, body in [*requests, ("PATCH", "/api/runs/small/experts/3", {"label": "another"})]:
            answer = client.request(method, path, json=body)
            if answer.status_code >= 500 and answer.status_code != 503:
                yield f"{method} {path} -> {answer.status_code} {answer.text[:200]}"


def paths(client: TestClient) -> Iterator[str]:
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
WHOLE: tuple[Any, ...] = (-1, 10**12, None)
NUMBERS: tuple[Any, ...] = (-1, float("nan"), 1e308, None)
TEXTS: tuple[Any, ...] = ("", "\ud800", "x" * 5_000_000)
LISTS: tuple[Any, ...] = ([], [[1]], [None] * 5000)
MAPPINGS: tuple[Any, ...] = ({}, {"1": None}, DEEP)


def mutations(entries: Entries) -> Iterator[tuple[str, tuple[str, Callable[[], bytes]]]]:
    """Name, and entry with its changed content, of each change of one value, or of the rows of a table."""
    tables = [name for name in sorted(entries) if name.startswith("database/") and entries[name]]
    for name in (*tables, *(name for name in RUN_FILES if name in entries)):
        first, *others = entries[name].splitlines() if name in tables else [entries[name]]
        document = json.loads(first)
        for place, value in mutated_values(document):
            text = f"{value!r}" if len(f"{value!r}") < 24 else f"{value!r}"[:20] + "…"
            yield f"{name}:{'.'.join(map(str, place))}={text}", (name, partial(changed, document, place, value, others))
    for name in tables:
        for rows in (slice(1, None), slice(0, 1), slice(0, 0)):
            yield f"{name}:{rows}", (name, partial(b"".join, entries[name].splitlines(keepends=True)[rows]))


def mutated_values(document: Any) -> Iterator[tuple[Place, Any]]:
    """Mutated values of a document by their place: one value of each type in each column and field of a result."""
    seen: set[tuple[int, Place, type]] = set()
    for place, value in places(document, ()):
        # Keys that are numbers are experts or rows, which the same code reads.
        column = () if str(place[0]).isdecimal() else place[: 2 if place[0] == "result" else 1]
        kind = (len(place), column, type(value))
        if kind not in seen:
            seen.add(kind)
            yield from ((place, other) for other in others_like(place, value))


def places(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if place:
        yield place, value
    first = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in first:
        yield from places(item, (*place, key))


def others_like(place: Place, value: Any) -> tuple[Any, ...]:
    """Hostile values of the type of a value."""
    if isinstance(value, str) and place[-1] in BYTES:
        content = base64.b64decode(value)
        packed = (content[:-1], b"", b"\xff" * len(content), content + content)
        return tuple(base64.b64encode(it).decode() for it in packed)
    if isinstance(value, str):
        return TEXTS + (("9999-12-31T23:59:59.999999",) if value[:2] == "20" and "T" in value else ())
    if isinstance(value, list | dict):
        return LISTS if isinstance(value, list) else MAPPINGS
    return WHOLE if isinstance(value, int) else NUMBERS


def changed(document: Any, place: Place, value: Any, others: Sequence[bytes]) -> bytes:
    result = inner = copy.deepcopy(document)
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    text = json.dumps(result).replace(json.dumps(DEEP), "[" * 40 + "]" * 40)
    return b"\n".join([text.encode(), *others])
