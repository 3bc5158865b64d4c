"""``mxd evaluate`` and ``mxd contrast``: results, the cache, rejected runs and text, and fewer active experts."""

import json
import re
import shutil
from pathlib import Path

from mxd.backend.cli.main import run
from tests.backend.cli.words import Capture, document, train_words
from tests.helpers.runs import World


def test_evaluate(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "a")) == 0
    words = train_words("--name", "b")
    words[words.index("--layer") + 1] = "2"
    assert run(words) == 0
    capsys.readouterr()
    lines = [f'{{"text": "held out {number} the old fox sang"}}' for number in range(40)]
    (workspace / "held.jsonl").write_text("\n".join(lines))
    (workspace / "other.txt").write_text("dreizehn alte Hunde. " * 60)
    words = ["evaluate", "a", "b", "--dataset", "held.jsonl", "--tokens", "320", "--resamples", "100"]
    assert run([*words, "--together", "--other-dataset", "other.txt", "--json"]) == 0
    first, second, both = document(capsys)
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
    assert run(words) == 0
    head, *rows = capsys.readouterr().out.splitlines()
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
    assert run([*words, "--k", "1,4", "--json"]) == 0
    few, whole = document(capsys)
    assert [(each["run"], each["k"], each["trained_k"]) for each in (few, whole)] == [("small", 1, 4), ("small", 4, 4)]
    assert few["l0"] <= 1 < whole["l0"]
    assert run([*words, "--json"]) == 0
    (again,) = document(capsys)
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
        assert run([*words, *more]) == 2
        assert sentence in capsys.readouterr().err


def test_a_contrast_of_files_equals_that_of_kinds(trained: Path, capsys: Capture) -> None:
    rows = [{"kind": "red", "text": "the red fox ran"}] * 12 + [
        {"kind": "blue", "text": "a very old blue dog sat"}
    ] * 12
    lines = [json.dumps(row) + "\n" for row in rows]
    for name, part in (("red", lines[:12]), ("blue", lines[12:]), ("both", lines)):
        (trained / f"{name}.jsonl").write_text("".join(part))
    few = "--min-tokens 5 --min-units 2 --shuffles 5"
    by_files = f"contrast small --a red.jsonl --b blue.jsonl {few}".split()
    assert run([*by_files, "--json"]) == 0
    files = document(capsys)
    assert run(f"contrast small --a both.jsonl --kind-a red --kind-b blue {few} --json".split()) == 0
    kinds = document(capsys)
    assert files["found_a"] > 0 and files["found_b"] > 0
    assert files["experts"] == kinds["experts"]
    assert (kinds["a"]["name"], kinds["b"]["documents"]) == ("red", 12)
    assert run(by_files) == 0
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("More often in A", "«", "by chance"))
    assert run(["contrast", "small", "--a", "red.jsonl"]) == 2
    assert "Text A and text B are the same" in capsys.readouterr().err
