"""``mxd evaluate``, ``mxd contrast`` and ``mxd verify``: results, the cache, rejected text, and repeated records."""

import json
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mxd.backend.cli.commands.verify import copy_database, differences
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from mxd.trainer.config.training import TextConfig
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import provenance, weights_digest
from tests.backend.cli.conftest import Capture, document, output, rejected, train_words
from tests.helpers.runs import World


def test_evaluate(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "a")) == 0
    words = train_words("--name", "b")
    words[words.index("--layer") + 1] = "2"
    assert run(words) == 0
    lines = [f'{{"text": "held out {number} the old fox sang"}}' for number in range(40)]
    (workspace / "held.jsonl").write_text("\n".join(lines))
    (workspace / "other.txt").write_text("dreizehn alte Hunde. " * 60)
    words = ["evaluate", "a", "b", "--dataset", "held.jsonl", "--tokens", "320", "--resamples", "100"]
    first, second, both = document(capsys, *words, "--together", "--other-dataset", "other.txt")
    wanted = "run method num_experts k parameters ce_original ce_replaced ce_zeroed ce_mean_ablated kl l0 loss_increase"
    assert first.keys() >= {*wanted.split(), "normalized_mse", "variance_explained", "dead_share", "routing_share"}
    assert first["loss_increase"].keys() == {"value", "low", "high"}
    assert first["shared_expert"].keys() >= {"loss_increase_without"}
    assert (first["run"], second["run"], both["run"]) == ("a", "b", "a + b")
    assert first["other_dataset"]["text"] == "other.txt"
    assert run([*words, "--together", "--other-dataset", "other.txt", "--json"]) == 0
    printed = capsys.readouterr()
    again = json.loads(printed.out)
    for result in (first, second, both, *again):
        del result["provenance"]["seconds"]
    assert again == [first, second, both]
    assert "Evaluating" not in printed.err, "earlier results are cached in the database"
    head, *rows = output(capsys, *words).splitlines()
    assert head.split()[0] == "run"
    assert [row.split()[0] for row in rows[:2]] == ["a", "b"]
    cells = dict(zip(*(re.split(r" {2,}", line.strip()) for line in (head, rows[0])), strict=True))
    assert cells["routing"] == f"{first['routing_share']:.2f}", cells
    assert cells["strict"] == f"{first['strict_routing_share']:.2f}"


def test_several_k_are_evaluated_and_cached(fitted: World, tmp_path: Path, capsys: Capture) -> None:
    data = shutil.copytree(fitted.data, tmp_path / "data")
    held = tmp_path / "held.txt"
    held.write_text("a very old dog sat and the fox ran. " * 40)
    words = f"evaluate small --data {data} --dataset {held} --tokens 320 --resamples 100".split()
    few, whole = document(capsys, *words, "--k", "1,4")
    assert [(each["run"], each["k"], each["trained_k"]) for each in (few, whole)] == [("small", 1, 4), ("small", 4, 4)]
    assert few["l0"] <= 1 < whole["l0"]
    (again,) = document(capsys, *words)
    for one in (whole, again):
        del one["provenance"]  # has the command line
    assert again == whole, "the run's own K is the run"
    assert run([*words, "--k", "1,4"]) == 0
    printed = capsys.readouterr()
    assert [row.split("  ")[0] for row in printed.out.splitlines()[1:3]] == ["small at K 1", "small"]
    assert "Evaluating" not in printed.err, "earlier results are cached in the database"
    for more, sentence in (
        (["--k", "5"], "small: k=5 exceeds the layer's K=4"),
        (["--k", "2", "--together"], "--k cannot be combined with --together"),
    ):
        assert sentence in rejected(capsys, *words, *more)


def test_a_contrast_of_files_equals_that_of_kinds(trained: Path, capsys: Capture) -> None:
    rows = [{"kind": "red", "text": "the red fox ran"}] * 12 + [
        {"kind": "blue", "text": "a very old blue dog sat"}
    ] * 12
    lines = [json.dumps(row) + "\n" for row in rows]
    for name, part in (("red", lines[:12]), ("blue", lines[12:]), ("both", lines)):
        (trained / f"{name}.jsonl").write_text("".join(part))
    few = "--min-tokens 5 --min-units 2 --shuffles 5"
    by_files = f"contrast small --a red.jsonl --b blue.jsonl {few}".split()
    files = document(capsys, *by_files)
    kinds = document(capsys, *f"contrast small --a both.jsonl --kind-a red --kind-b blue {few}".split())
    assert files["found_a"] > 0 and files["found_b"] > 0
    assert files["experts"] == kinds["experts"]
    assert (kinds["a"]["name"], kinds["b"]["documents"]) == ("red", 12)
    said = output(capsys, *by_files)
    for sentence in ("More often in A", "«", "Few documents: 12 in A", "assigned to A and B at random"):
        assert sentence in said
    assert "Text A and text B are the same" in rejected(capsys, "contrast", "small", "--a", "red.jsonl")


@pytest.mark.parametrize("lacking", ["runs", "seconds"])
def test_a_record_with_an_incomplete_provenance_is_refused(tmp_path: Path, capsys: Capture, lacking: str) -> None:
    origin = {"command": "mxd evaluate small", "runs": {}, "seconds": 1.0}
    del origin[lacking]
    (tmp_path / "record.json").write_text(json.dumps([{"provenance": origin}]))
    said = rejected(capsys, "verify", str(tmp_path / "record.json"))
    assert f"'mxd evaluate small' has no {lacking}. Record the result again" in said


def test_a_record_is_repeated_or_says_why_not(trained: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"a": "the red fox ran", "b": "a very old blue dog sat"}.items():
        (trained / f"{name}.jsonl").write_text((json.dumps({"text": text}) + "\n") * 12)
    words = "contrast small --a a.jsonl --b b.jsonl --min-tokens 5 --min-units 2 --shuffles 5"
    original = json.dumps({"texts": document(capsys, *words.split())})
    record, data = trained / "record.json", trained / "data"
    record.write_text(original)
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
    again = trained / "again"  # prints what the command has printed, without its five seconds
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
    page, raw = trained / "page.md", trained / "results" / "raw" / "texts.json"
    raw.parent.mkdir(parents=True)
    record.rename(raw)
    page.write_text("Raw data: `results/raw/texts.json`.\n")
    assert re.match("0: .*needs 60 minutes", verify(str(page)), re.DOTALL)
    page.write_text("No data.\n")
    assert "has no result with the command that measured it" in rejected(capsys, "verify", str(page))
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
