"""Which runs can be in place together, and what new ones are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainer.errors import UserError
from trainer.in_place import names_of, refuse_apart


def run(name: str, *layers: int, language_model: str = "mine") -> Any:
    return SimpleNamespace(name=name, language_model_source=language_model, config=SimpleNamespace(layers=layers))


def test_runs_of_different_layers_of_one_language_model_go_together() -> None:
    refuse_apart([run("low", 0, 1), run("high", 2)])


def test_a_layer_that_two_write_is_named_with_both() -> None:
    with pytest.raises(UserError, match="wide and high replace the same layer, 2,"):
        refuse_apart([run("wide", 1, 2), run("low", 0), run("high", 2)])


def test_runs_of_two_language_models_are_refused() -> None:
    with pytest.raises(UserError, match=r"several language models \(mine, other\)"):
        refuse_apart([run("low", 0), run("high", 1, language_model="other")])


def test_new_names_come_from_the_pattern() -> None:
    assert names_of([run("low", 0), run("high", 1)], "{run}-private") == ["low-private", "high-private"]


@pytest.mark.parametrize(("pattern", "reason"), [("x", "2 runs would be named x"), ("../{run}", "cannot be named")])
def test_names_that_cannot_be_are_refused(pattern: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        names_of([run("low", 0), run("high", 1)], pattern)
