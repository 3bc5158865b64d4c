"""``mxd evaluate --k``: runs evaluated with fewer active experts than they were trained with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mxd.backend.cli.main import run
from tests.helpers.runs import World


def test_several_k_are_evaluated_and_cached(fitted: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = shutil.copytree(fitted.data, tmp_path / "data")
    held = tmp_path / "held.txt"
    held.write_text("a very old dog sat and the fox ran. " * 40)
    words = ["evaluate", "small", "--data", str(data), "--dataset", str(held), "--tokens", "320", "--resamples", "100"]
    assert run([*words, "--k", "1,4", "--json"]) == 0
    few, whole = json.loads(capsys.readouterr().out)
    assert (few["run"], few["k"], few["trained_k"]) == ("small", 1, 4)
    assert (whole["run"], whole["k"], whole["trained_k"]) == ("small", 4, 4)
    assert few["l0"] <= 1 < whole["l0"]
    assert run([*words, "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)
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
