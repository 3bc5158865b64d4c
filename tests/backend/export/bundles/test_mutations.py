"""Mutated bundles: each is refused with one sentence, or opens and is served without an error of the server.

``make test`` tries a sample, ``make fuzz`` all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from fastapi.testclient import TestClient

from mxd.backend.api.app import build_api, create_app
from mxd.backend.export.bundles.pack import OF_PEOPLE
from mxd.backend.export.bundles.unpack import unpack
from mxd.backend.schemas.experts import SimilarBy
from mxd.backend.schemas.runs import FigureName
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError
from tests.helpers.formats.bundle_mutations import Mutation, Rows, mutations
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
    tried = mutations(entries)
    assert len(tried) >= 193
    assert {mutation.name for mutation in tried} >= ONCE_BAD
    if WANTED is None:
        tried = [*tried[:: len(tried) // FEW], *(mutation for mutation in tried if mutation.name in ONCE_BAD)]
    bad = [f"{mutation.name}: {problem}" for mutation in tried for problem in _problems(entries, mutation, tmp_path)]
    assert not bad, "\n".join(bad)


def _problems(entries: Entries, mutation: Mutation | Rows, folder: Path) -> Iterator[str]:
    """Everything that goes wrong with a mutated bundle."""
    with CASES.timed(), TemporaryDirectory(dir=folder) as place:
        file = write_bundle(Path(place) / "bad.mxd", mutation.apply(entries))
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
