"""Compatibility of runs that replace layers jointly, and names of new runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mxd.trainer.errors import UserError
from mxd.trainer.storage.run_sets import check_compatible_runs, names_of


def run(name: str, layer: int, language_model: str = "mine") -> Any:
    return SimpleNamespace(name=name, language_model_source=language_model, config=SimpleNamespace(layer=layer))


def test_two_runs_of_one_layer_are_rejected_with_both_names() -> None:
    with pytest.raises(UserError, match="wide and high both replace layer 2"):
        check_compatible_runs([run("wide", 2), run("low", 0), run("high", 2)])


def test_runs_of_two_language_models_are_rejected() -> None:
    with pytest.raises(UserError, match="different language models: mine, other"):
        check_compatible_runs([run("low", 0), run("high", 1, language_model="other")])


def test_new_names_come_from_the_pattern() -> None:
    assert names_of([run("low", 0), run("high", 1)], "{run}-private") == ["low-private", "high-private"]


@pytest.mark.parametrize(("pattern", "reason"), [("x", "2 runs would be named 'x'"), ("../{run}", "Invalid run name")])
def test_invalid_names_are_rejected(pattern: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        names_of([run("low", 0), run("high", 1)], pattern)
