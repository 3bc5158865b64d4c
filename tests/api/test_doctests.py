"""Every public name has an example, and all examples run, in order, on a tiny model."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest
import torch

import mxd
from tests.api.conftest import texts, user_model
from tests.helpers.language_models import byte_tokenizer, saved_language_model

NAMES = [name for name in mxd.__all__ if name != "__version__"]


def examples(name: str) -> list[doctest.DocTest]:
    """The examples in the docstring of a public name."""
    return [it for it in doctest.DocTestFinder(recurse=False).find(getattr(mxd, name), name) if it.examples]


def test_every_public_name_has_an_example_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    model, tokenizer = user_model("llama"), byte_tokenizer()
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "context_length": 16, "progress": False}
    run = mxd.train(model, tokenizer, texts(), layer=1, tokens="2k", name="my-run", **sizes)
    mxd.index(run, texts(), tokens="2k", progress=False)
    names = {
        "mxd": mxd,
        "torch": torch,
        "model": model,
        "tokenizer": tokenizer,
        "texts": list(texts(400)),
        "model_folder": str(saved_language_model(tmp_path / "model")),
    }
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    for name in NAMES:
        tests = examples(name)
        assert tests, f"{name} has no example"
        for test in tests:
            test.globs = dict(names)
            runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
