"""Errors of the Python interface name keyword arguments, not flags; every public name has an example that runs."""

import doctest
import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import mxd
from mxd.api.errors import in_python
from tests.api.conftest import User, one_family, texts, user_model
from tests.helpers.language_models import byte_tokenizer, saved_language_model


@pytest.mark.parametrize(
    ("flags", "keywords"),
    [
        ("k=9 exceeds the number, 8. Lower --k.", "k=9 exceeds the number, 8. Lower k=."),
        ("Use --gate=flat or --k 4.", 'Use gate="flat" or k=4.'),
        ("--on-short-text=repeat repeats it.", 'on_short_text="repeat" repeats it.'),
        ("Use --resume to continue it", 'Use resume="if-any" to continue it'),
        ("or --seen-text to evaluate", "or seen_text=True to evaluate"),
        ("Run 'mxd index my-run --dataset DATA --tokens N'.", 'Run mxd.index("my-run", dataset="DATA", tokens="N").'),
        ("Run 'mxd runs' for a list.", "Run mxd.runs() for a list."),
        ("'mxd train --name a --resume'", 'mxd.train(name="a", resume="if-any")'),
        ("Run 'mxd doctor', which", "Run 'mxd doctor', which"),
        ("Run 'mxd remove it --yes'.", "Run 'mxd remove'."),
        ("'mxd finetune a --name \"{run}-b\" --resume'", 'mxd.finetune("a", name="{run}-b", resume="if-any")'),
        ("Run 'pip install --no-deps it'.", "Run 'pip install --no-deps it'."),
        ("Use 'torchrun --nproc-per-node 1', or omit --k.", "Use 'torchrun --nproc-per-node 1', or omit k=."),
    ],
)
def test_flags_become_keywords(flags: str, keywords: str) -> None:
    assert in_python(flags) == keywords


@one_family
def test_no_error_names_a_flag(user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXD_DATA", str(tmp_path))
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "context_length": 16, "progress": False, "layer": 1}
    held: dict[str, Any] = {"model": user.model, "tokenizer": user.tokenizer}
    train = partial(mxd.train, user.model, user.tokenizer)
    calls: dict[str, Callable[[], object]] = {
        r"Unknown setting: lr\. Did you mean 'learning_rate'": lambda: train(texts(), lr=1.0, **sizes),
        r"Unknown run 'x'.*Train one with mxd\.train": lambda: mxd.load("x"),
        r'already exists\. Use resume="if-any"': lambda: train(texts(), name="mine", data=user.data, **sizes),
        r"exceeds the number of experts, 40\. Lower k=": lambda: train(texts(), name="other", **(sizes | {"k": 41})),
        r'are needed.*on_short_text="repeat"': lambda: train(list(texts(20)), tokens="1M", **sizes),
        r"Choose them with experts=": lambda: mxd.export(user.run, tmp_path / "vectors", format="gguf", **held),
        r"Lower k=|exceeds the layer's K": lambda: mxd.route(user.run, "one", k=9, **held),
        r"neither a pair": lambda: mxd.probe(user.run, ["only a text"], **held),
    }
    for message, call in calls.items():
        with pytest.raises(mxd.UserError, match=message) as raised:
            call()
        assert "--" not in str(raised.value)


@one_family
def test_what_the_command_line_does_has_a_function(user: User, tmp_path: Path) -> None:
    """Each result equals that of the function under the command."""
    held: dict[str, Any] = {"model": user.model, "tokenizer": user.tokenizer, "progress": False}
    table = user.run.experts()
    result = mxd.ablate(user.run, **held)
    assert result.experts == int((user.run.experts()["output_share"] > 0).sum()) > 0
    (tuned,) = mxd.finetune([user.run], list(texts()), tokens="1k", name="{run}-tuned", **held)
    assert tuned.name == "mine-tuned"
    assert tuned.run.config.parents == ("mine",)
    found = mxd.recurrence(user.run, [tuned], list(texts(200, seed=3)), tokens="2k", min_tokens=2, **held)
    assert [each.run for each in found.runs] == ["mine-tuned"]
    assert user.run.experts()["compared_runs"].max() == 1
    labels = [{"text": text, "label": index % 2} for index, text in enumerate(texts(40))]
    assert mxd.probe(user.run, labels, **held)["examples"] == 40
    expert = int(table["density"].to_numpy().argmax())
    (vectors,) = mxd.export(user.run, tmp_path / "vectors", format="vectors", experts=[expert], **held)
    assert vectors.name == "vectors.safetensors"
    formats: tuple[Literal["saelens", "neuronpedia"], ...] = ("saelens", "neuronpedia")
    for format in formats:
        for path in mxd.export(user.run, tmp_path / format, format=format, progress=False):
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
            assert str(user.data).encode() not in content, path
    assert mxd.pack(user.run, tmp_path / "mine.mxd", progress=False).stat().st_size > 1000
    assert {"mine", "mine-tuned"} <= set(mxd.runs(data=user.data))


def test_every_public_name_has_an_example_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    model, tokenizer = user_model("llama"), byte_tokenizer()
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "context_length": 16, "progress": False}
    run = mxd.train(model, tokenizer, texts(), layer=1, tokens="2k", name="my-run", **sizes)
    mxd.index(run, texts(), tokens="2k", progress=False)
    names: dict[str, Any] = {"mxd": mxd, "torch": torch, "model": model, "tokenizer": tokenizer}
    names |= {"texts": list(texts(400)), "model_folder": str(saved_language_model(tmp_path / "model"))}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    for name in set(mxd.__all__) - {"__version__"}:
        tests = [it for it in finder.find(getattr(mxd, name), name) if it.examples]
        assert tests, f"{name} has no example"
        for test in tests:
            test.globs = dict(names)
            runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
