"""``mxd verify``: a recorded result repeats, differs, takes too long, or cannot be repeated."""

import json
import shlex
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
    few = ["--min-tokens", "5", "--min-units", "2", "--shuffles", "5", "--json"]
    assert run(["contrast", "small", "--a", "a.jsonl", "--b", "b.jsonl", *few]) == 0
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


def test_a_measurement_names_its_command_weights_text_and_code(record: Path) -> None:
    origin = json.loads(record.read_text())["texts"]["provenance"]
    assert shlex.split(origin["command"])[:3] == ["mxd", "contrast", "small"]
    assert origin["runs"] == {"small": weights_digest([Run.load("small", record.parent / "data")])}
    assert origin["texts"].keys() == {"a.jsonl", "b.jsonl"}
    assert origin["packages"].keys() == {"torch", "transformers"}
    assert origin["code"] and origin["seconds"] > 0


def test_a_record_is_repeated_or_says_why_not(record: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(["verify", str(record), *words])
        return code, capsys.readouterr().out

    def changed(**changes: object) -> None:
        document = json.loads(original)
        document["texts"]["provenance"] |= {key: value for key, value in changes.items() if key != "found_a"}
        document["texts"] |= {key: value for key, value in changes.items() if key == "found_a"}
        record.write_text(json.dumps(document))

    original = record.read_text()
    data = record.parent / "data"
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    code, printed = verify()
    assert (code, "repeats" in printed) == (0, True)
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    again = record.with_name("again")  # prints what the command has printed, without its five seconds
    again.write_text(f"#!/bin/sh\ncat <<'END'\n{original}\nEND\n")
    again.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(again))
    changed(found_a=-5)
    code, printed = verify()
    assert (code, "differs" in printed, "found_a -5, now" in printed) == (1, True, True)
    monkeypatch.setenv("MXD_DATA", "elsewhere")
    assert "cannot be repeated: Unknown run 'small'" in verify()[1]
    assert "found_a -5, now" in verify("--data", str(data))[1]
    monkeypatch.setenv("MXD_DATA", str(data))
    monkeypatch.setattr(sys, "executable", "/bin/false")  # from here on nothing is executed
    changed(seconds=3600)
    code, printed = verify()
    assert (code, "needs 60 minutes" in printed) == (0, True)
    changed(runs={"small": "0" * 32})
    assert "small has other weights now" in verify()[1]
    changed(command="mxd remove small")
    assert "not a measuring command" in verify()[1]
    changed(command="mxd label small --endpoint http://127.0.0.1:9/v1 --language-model x")
    assert "a language model wrote the labels" in verify()[1]
    changed(command="mxd contrast nothing --a a.jsonl", runs={"nothing": "0" * 32})
    assert "cannot be repeated" in verify()[1] and "nothing" in verify()[1]


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


def test_a_page_leads_to_its_raw_files(record: Path, trained: Path, capsys: Capture) -> None:
    (trained / "results" / "raw").mkdir(parents=True)
    document = json.loads(record.read_text())
    document["texts"]["provenance"]["seconds"] = 3600  # so that nothing is executed
    (trained / "results" / "raw" / "texts.json").write_text(json.dumps(document))
    page = trained / "page.md"
    page.write_text("Raw data: `results/raw/texts.json`.\n")
    assert run(["verify", str(page), "--json"]) == 0
    assert [each["verdict"][:7] for each in json.loads(capsys.readouterr().out)] == ["needs 6"]
    page.write_text("No data.\n")
    assert run(["verify", str(page)]) == 2
    assert "has no result with the command that measured it" in capsys.readouterr().err


def test_numbers_are_compared_up_to_rounding_and_elements_by_their_name() -> None:
    now = {"experts": [{"expert": 2, "x": 1.0}, {"expert": 1, "x": 0.5}], "kind": "a", "new": 1}
    assert list(differences({"experts": [{"expert": 1, "x": 0.5 + 1e-9}], "kind": "a"}, now)) == []
    (found,) = differences({"experts": [{"expert": 1, "x": 0.4}]}, now)
    assert found.place == "experts[1].x"
    assert found.size == pytest.approx(0.2)
    assert [each.recorded for each in differences({"kind": "b", "new": None}, now)] != []
    (shorter,) = differences([1, 2], [1])
    assert shorter.place == "length of "
