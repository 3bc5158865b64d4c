"""``mxd verify``: a recorded result repeats, differs, takes too long, or cannot be repeated."""

import json
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mxd.backend.cli.commands.verify import copy_database, differences
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from mxd.trainer.config import TextConfig
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import provenance, weights_digest
from tests.backend.cli.words import Capture


@pytest.fixture
def record(trained: Path, capsys: Capture) -> Path:
    for name, text in {"a": "the red fox ran", "b": "a very old blue dog sat"}.items():
        (trained / f"{name}.jsonl").write_text((json.dumps({"text": text}) + "\n") * 12)
    few = "--a a.jsonl --b b.jsonl --min-tokens 5 --min-units 2 --shuffles 5 --json"
    assert run(["contrast", "small", *few.split()]) == 0
    file = trained / "record.json"
    file.write_text(json.dumps({"texts": json.loads(capsys.readouterr().out)}))
    return file


@pytest.mark.parametrize("lacking", ["runs", "seconds"])
def test_a_record_with_an_incomplete_provenance_is_refused(tmp_path: Path, capsys: Capture, lacking: str) -> None:
    origin = {"command": "mxd evaluate small", "runs": {}, "seconds": 1.0}
    del origin[lacking]
    (tmp_path / "record.json").write_text(json.dumps([{"provenance": origin}]))
    assert run(["verify", str(tmp_path / "record.json")]) == 2
    assert f"'mxd evaluate small' has no {lacking}. Record the result again" in capsys.readouterr().err


def test_a_record_is_repeated_or_says_why_not(record: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    original, data = record.read_text(), record.parent / "data"
    origin = json.loads(original)["texts"]["provenance"]
    assert origin["command"].startswith("mxd contrast small ")
    assert origin["runs"] == {"small": weights_digest([Run.load("small", data)])}
    assert origin["texts"].keys() == {"a.jsonl", "b.jsonl"}
    assert origin["packages"].keys() == {"torch", "transformers"}
    assert origin["code"] and origin["seconds"] > 0

    def verify(*words: str) -> str:
        capsys.readouterr()
        code = run(["verify", *(words or [str(record)])])
        return f"{code}: {capsys.readouterr().out}"

    def change(found_a: int | None = None, **changes: object) -> None:
        document = json.loads(original)
        document["texts"]["provenance"] |= changes
        document["texts"] |= {} if found_a is None else {"found_a": found_a}
        record.write_text(json.dumps(document))

    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert re.match("0: .*repeats", verify(), re.DOTALL)
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    again = record.with_name("again")  # prints what the command has printed, without its five seconds
    again.write_text(f"#!/bin/sh\ncat <<'END'\n{original}\nEND\n")
    again.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(again))
    change(found_a=-5)
    assert re.match("1: .*differs.*found_a -5, now", verify(), re.DOTALL)
    monkeypatch.setenv("MXD_DATA", "elsewhere")
    assert "cannot be repeated: Unknown run 'small'" in verify()
    assert "found_a -5, now" in verify(str(record), "--data", str(data))
    monkeypatch.setenv("MXD_DATA", str(data))
    monkeypatch.setattr(sys, "executable", "/bin/false")  # from here on nothing is executed
    change(seconds=3600)
    assert re.match("0: .*needs 60 minutes", verify(), re.DOTALL)
    page, raw = record.with_name("page.md"), record.parent / "results" / "raw" / "texts.json"
    raw.parent.mkdir(parents=True)
    record.rename(raw)
    page.write_text("Raw data: `results/raw/texts.json`.\n")
    assert re.match("0: .*needs 60 minutes", verify(str(page)), re.DOTALL)
    page.write_text("No data.\n")
    assert run(["verify", str(page)]) == 2
    assert "has no result with the command that measured it" in capsys.readouterr().err
    for changes, said in (
        ({"runs": {"small": "0" * 32}}, "small has other weights now"),
        ({"command": "mxd remove small"}, "not a measuring command"),
        ({"command": "mxd label small --endpoint http://127.0.0.1:9/v1 --language-model x"}, "a language model wrote"),
        ({"command": "mxd contrast nothing --a a.jsonl", "runs": {"nothing": "0" * 32}}, "nothing"),
    ):
        change(**changes)
        assert said in verify()


def test_the_copied_database_is_the_one_of_the_command_with_its_log(tmp_path: Path) -> None:
    file = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("INSERT INTO notes VALUES ('new')")
        connection.commit()
        copy_database(Settings(data=tmp_path, database=f"sqlite:///{file}"), tmp_path / "copy.sqlite")
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as copied:
        assert copied.execute("SELECT text FROM notes").fetchall() == [("new",)]


def test_texts_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    texts = [TextConfig(dataset=str(tmp_path / folder / "x.txt")) for folder in ("a", "b")]
    for text in texts:
        Path(text.dataset).parent.mkdir()
        Path(text.dataset).write_text(text.dataset)
    assert provenance((), texts[:1])["texts"].keys() == {"x.txt"}
    assert provenance((), texts)["texts"].keys() == {text.dataset for text in texts}


def test_numbers_are_compared_up_to_rounding_and_elements_by_their_name() -> None:
    now = {"experts": [{"expert": 2, "x": 1.0}, {"expert": 1, "x": 0.5}], "kind": "a", "new": 1}
    assert list(differences({"experts": [{"expert": 1, "x": 0.5 + 1e-9}], "kind": "a"}, now)) == []
    (found,) = differences({"experts": [{"expert": 1, "x": 0.4}]}, now)
    assert found.place == "experts[1].x"
    assert found.size == pytest.approx(0.2)
    assert [each.recorded for each in differences({"kind": "b", "new": None}, now)] != []
    (shorter,) = differences([1, 2], [1])
    assert shorter.place == "length of "
