"""Bundles: there and back, of other versions of the program, and those that somebody means harm with."""

import json
import resource
import sys
import zipfile
from collections.abc import Callable
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from mxd.backend.api.app import create_app
from mxd.backend.database.annotations import AccessTokenRecord
from mxd.backend.database.engine import opened
from mxd.backend.export.bundles.pack import ALWAYS_ALLOWED, LARGEST_LINE, OPENED, TABLES, unpack
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.run import Run
from tests.backend.export.bundles.conftest import Entries, entries_of, write_bundle
from tests.helpers.fuzzing import CASES
from tests.helpers.processes import PROCESSES
from tests.helpers.runs import World

Change = Callable[[Entries], None]


def table_rows(data: Path, table: Table) -> list[tuple[Any, ...]]:
    """All rows of a table, without what is each database's own."""
    wanted = select(*(column for column in table.columns if column.name not in ("id", "run_id")))
    if "run" in table.c:
        wanted = wanted.where(table.c.run == "small")
    with opened(sqlite_url(data)) as database, Session(database) as session:
        return sorted((tuple(row) for row in session.execute(wanted)), key=str)


WITH_PATHS = tuple(f"database/{name}.jsonl" for name in ("indexes", "evaluations", "probes", "measurements"))


def test_a_packed_run_unpacks_unchanged(world: World, bundle: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    run = unpack(bundle, opened, "elsewhere/tiny")
    assert (run, Run.load("small", opened).config.language_model) == ("small", "elsewhere/tiny")
    filled = 0
    for name, table in TABLES.items():
        found, wanted = table_rows(opened, table), table_rows(world.data, table)
        if name not in WITH_PATHS:
            assert found == wanted, name
        filled += bool(found)
    at_another_k, evaluated = table_rows(opened, TABLES["database/evaluations.jsonl"])
    assert (at_another_k[0].startswith("small at K "), evaluated[:2]) == (True, ("small", "held.jsonl"))
    assert [row[0] for row in table_rows(opened, TABLES["database/measurements.jsonl"])] == ["ablate", "recurrence"]
    assert "'dataset': 'held.jsonl'" in str(table_rows(opened, TABLES["database/measurements.jsonl"]))
    assert any(isinstance(value, dict) and value.get("language_model") == "lm" for value in evaluated)
    assert filled >= 10, "a test of empty tables would say nothing"
    assert unpack(bundle, opened, None) == run, "the second time nothing is done"


def test_times_of_another_zone_are_converted(bundle: Path, tmp_path: Path) -> None:
    entries = entries_of(bundle)
    changed("labels", lambda row: row.update(updated_at="2026-01-01T12:00:00+02:00"))(entries)
    opened = tmp_path / "opened"
    unpack(write_bundle(tmp_path / "zone.mxd", entries), opened, None)
    assert datetime(2026, 1, 1, 10) in {row[-1] for row in table_rows(opened, TABLES["database/labels.jsonl"])}


def test_bundles_contain_no_local_paths(world: World, bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        for name in archive.namelist():
            assert str(world.data.parent).encode() not in archive.read(name), name
        assert b"of another run" not in archive.read("database/labels.jsonl")
    assert AccessTokenRecord.__tablename__ not in {table.name for table in TABLES.values()}


MANIFEST = "manifest.json"


def rewritten(
    entries: Entries, name: str, change: Callable[[dict[str, Any]], object], count: int | None = None
) -> bytes:
    """A table of which the first ``count`` rows were changed, or all."""
    lines = entries[f"database/{name}.jsonl"].splitlines()
    rows = [json.loads(line) for line in lines[:count]]
    for row in rows:
        change(row)
    return b"\n".join([*(json.dumps(row).encode() for row in rows), *lines[len(rows) :]])


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    """Change the first row of a table."""
    return lambda entries: entries.update({f"database/{name}.jsonl": rewritten(entries, name, change, 1)})


def put(name: str, content: bytes) -> Change:
    return lambda entries: entries.update({name: content})


HOSTILE: list[tuple[str, Change, str]] = [
    ("parent", put("../evil", b"x"), "unknown entry"),
    ("deeper parent", put("run/tokenizer/../../../evil.json", b"x"), "unknown entry"),
    ("absolute", put("/tmp/evil", b"x"), "unknown entry"),
    ("backslash", put("run\\..\\evil.json", b"x"), "unknown entry"),
    ("hidden", put("run/tokenizer/.evil.json", b"x"), "unknown entry"),
    ("pickle", put("run/layer.pt", b"x"), "unknown entry"),
    ("code", put("run/tokenizer/tokenization.py", b"x"), "unknown entry"),
    ("tokens", put("database/access_tokens.jsonl", b"{}"), "unknown entry"),
    ("zeros", put("database/notes.jsonl", bytes(50 << 20)), "would expand to 5\\d,\\d{3},\\d{3} bytes"),
    ("no JSON", put("database/notes.jsonl", b"{"), "not JSON lines"),
    ("deep JSON", put("database/notes.jsonl", b"[" * 200_000), "not JSON lines"),
    ("no row", put("database/notes.jsonl", b"7"), "its columns are not those"),
    ("unknown column", changed("experts", lambda row: row.update(evil=1)), "its columns are not those"),
    ("missing column", changed("experts", lambda row: row.pop("density")), "its columns are not those"),
    ("text for a number", changed("experts", lambda row: row.update(density="<script>")), "density: wrong type"),
    ("number for a text", changed("labels", lambda row: row.update(label=7)), "labels.label: wrong type"),
    ("no base 64", changed("examples", lambda row: row.update(active="?")), "examples.active: wrong type"),
    ("short bytes", changed("examples", lambda row: row.update(active="YWJj")), "has 3 bytes"),
    ("negative", changed("experts", lambda row: row.update(histogram=[-1])), r"histogram\.0: Input should be greater"),
    ("nested lists", changed("experts", lambda row: row.update(top_tokens=[[["a"]]])), r"top_tokens\.0\.0: "),
    ("of another run", changed("evaluations", lambda row: row.update(subject="other")), "subject is 'other'"),
    ("twice", lambda e: e.update({"database/notes.jsonl": 2 * e["database/notes.jsonl"]}), "Invalid rows for table"),
    ("no weights", put("run/layer.safetensors", b"x"), "Cannot read"),
    ("no settings", put("run/run.json", b"{}"), "Invalid config"),
    ("newer", lambda e: e.update({MANIFEST: e[MANIFEST].replace(b'"bundle": 1', b'"bundle": 2')}), "version 2"),
]


@pytest.mark.parametrize(("change", "sentence"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_hostile_bundles_are_rejected(bundle: Path, tmp_path: Path, change: Change, sentence: str) -> None:
    entries = entries_of(bundle)
    change(entries)
    file = write_bundle(tmp_path / "bad.mxd", entries)
    with pytest.raises(UserError, match=sentence):
        unpack(file, tmp_path / "opened", None)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.mxd"], "nothing is left, here or elsewhere"
    assert not (tmp_path.parent / "evil").exists()


def test_files_that_are_not_bundles_are_rejected(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "text.mxd").write_text("no zip file")
    (tmp_path / "half.mxd").write_bytes(bundle.read_bytes()[: bundle.stat().st_size // 2])
    with zipfile.ZipFile(tmp_path / "other.mxd", "w") as archive:
        archive.writestr("a.txt", "b")
    for name, sentence in {
        "text": "not a bundle",
        "half": "not a bundle",
        "other": "not a bundle",
        "none": "not found",
    }.items():
        with pytest.raises(UserError, match=sentence):
            unpack(tmp_path / f"{name}.mxd", tmp_path / "opened", None)


def test_changed_bundles_are_rejected(entries: Entries, tmp_path: Path) -> None:
    labels = "database/labels.jsonl"
    with zipfile.ZipFile(tmp_path / "bad.mxd", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (entries | {labels: entries[labels].replace(b"foxes", b"boxes")}).items():
            archive.writestr(name, content)
    with pytest.raises(UserError, match=r"labels\.jsonl in the bundle does not match its checksum"):
        unpack(tmp_path / "bad.mxd", tmp_path / "opened", None)


def test_a_folder_with_other_files_is_not_overwritten(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    for _ in range(2):
        with pytest.raises(UserError, match="contains something else"):
            unpack(bundle, tmp_path, None)
        assert (tmp_path / "mine").read_text() == "precious"
        (tmp_path / OPENED).write_text("{}")


EVALUATIONS = "database/evaluations.jsonl"


@pytest.mark.parametrize("fields", [{"jacobian": ...}, {"jacobian": None}, {"later": {"value": 1.0}}], ids=str)
def test_evaluations_of_other_versions_are_shown(fields: dict[str, Any], entries: Entries, tmp_path: Path) -> None:
    def change(row: dict[str, Any]) -> None:
        assert row["result"]["jacobian"] is not None
        row["result"] = {name: value for name, value in (row["result"] | fields).items() if value is not ...}

    file = write_bundle(tmp_path / "other.mxd", entries | {EVALUATIONS: rewritten(entries, "evaluations", change, 1)})
    opened = tmp_path / "opened"
    unpack(file, opened, None)
    with TestClient(create_app(Settings(data=opened, device="cpu"))) as client:
        shown = client.get("/api/runs/small/report")
    assert shown.status_code == 200
    assert ("Jacobian" in shown.text) == ("jacobian" not in fields)


def test_rows_without_later_columns_are_read(entries: Entries, tmp_path: Path) -> None:
    earlier = {
        "database/experts.jsonl": rewritten(entries, "experts", lambda row: row.pop("steerability")),
        "database/measurements.jsonl": rewritten(entries, "measurements", lambda row: row.pop("created_at")),
    }
    pages = []
    for place, others in (("now", {}), ("earlier", earlier)):
        opened = tmp_path / place
        unpack(write_bundle(tmp_path / f"{place}.mxd", entries | others), opened, None)
        with TestClient(create_app(Settings(data=opened, device="cpu"))) as client:
            experts = client.get("/api/runs/small/experts?sort=density&order=desc&limit=3").json()["experts"]
            examples = [client.get(f"/api/runs/small/experts/{it['expert']}/examples").json() for it in experts]
            pages.append(([{**it, "steerability": None} for it in experts], examples))
    assert pages[0] == pages[1]


MOST_MB = 250
"""More than a sound bundle. Read together, the rows take 400 MB; two batches of a few rows, 170 MB."""


def _open(connection: Connection, file: Path, folder: Path) -> None:
    """Open a bundle; send the largest resident memory in MB, and the error message."""
    said = ""
    try:
        unpack(file, folder, None)
    except UserError as error:
        said = str(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    connection.send((peak, said))


def test_rows_that_expand_in_memory_are_read_a_few_at_a_time(bundle: Path, entries: Entries, tmp_path: Path) -> None:
    def opened_apart(file: Path, folder: Path) -> tuple[float, str]:
        ours, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=_open, args=(theirs, file, folder))
        process.start()
        result: tuple[float, str] = ours.recv()
        process.join()
        return result

    written = entries[EVALUATIONS].splitlines()[0]
    row = json.loads(written)
    filling = "[]," * ((LARGEST_LINE // 2 - len(written)) // 4)
    lines = []
    for number in range(int(0.7 * ALWAYS_ALLOWED / len(filling))):
        text = json.dumps(row | {"fingerprint": f"{number:032}", "result": row["result"] | {"later": None}})
        lines.append(text.replace('"later": null', f'"later": [{filling}1]'))
    file = write_bundle(tmp_path / "large.mxd", entries | {EVALUATIONS: "\n".join(lines).encode()})
    assert file.stat().st_size < 10 * bundle.stat().st_size
    usual, _ = opened_apart(bundle, tmp_path / "usual")
    with CASES.timed():
        peak, said = opened_apart(file, tmp_path / "large")
    assert peak - usual < MOST_MB, said
