"""Every function of the Python interface: training to serving, errors that name keywords, examples that run."""

import doctest
import gzip
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset, DatasetDict

import mxd
from mxd.api.datasets import save_labelled
from mxd.api.errors import in_python
from mxd.trainer.data.readers import read_labelled
from tests.api.conftest import User, one_family, texts, user_model
from tests.api.test_attachment import snapshot
from tests.helpers.runs import byte_tokenizer, saved_language_model

SIZES: dict[str, Any] = {"layer": 1, "num_experts": 40, "k": 4, "context_length": 16, "batch_tokens": 64}
SIZES |= {"buffer_tokens": 512, "log_every": 4, "progress": False}


ROWS = Dataset.from_dict({"text": ["a", "b"]})
HELD = Path(__file__).parents[2] / "data" / "demo" / "held_out.jsonl.gz"


def trained(folder: Path, dataset: Any, **changes: Any) -> mxd.Layer:
    return mxd.train(user_model("llama"), byte_tokenizer(), dataset, data=folder, **(SIZES | changes))


def ids() -> Iterator[list[int]]:
    start = byte_tokenizer().eos_token_id
    return ([start, *byte_tokenizer()(text)["input_ids"]] for text in texts(40))


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: list(texts(40)),
        lambda: Dataset.from_dict({"text": list(texts(40))}),
        lambda: Dataset.from_dict({"input_ids": list(ids())}),
        lambda: (torch.tensor(row) for row in ids()),
        lambda: iter([torch.tensor([row[:40] for row in ids()])]),
    ],
    ids=["texts", "dataset", "tokenised dataset", "tensors", "batches of tensors"],
)
def test_every_kind_of_dataset_trains(tmp_path: Path, dataset: Any) -> None:
    run = trained(tmp_path, dataset(), name="run", tokens=640)
    assert run.run.config.tokens == 640
    assert torch.isfinite(run(torch.randn(2, 16))).all()


def test_texts_and_their_token_ids_train_the_same_layer(tmp_path: Path) -> None:
    runs = [trained(tmp_path, dataset, name=name) for name, dataset in (("texts", list(texts(40))), ("ids", ids()))]
    first, second = (dict(run.named_parameters()) for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert runs[0].run.config.tokens == runs[1].run.config.tokens > 1500


def test_training_keeps_the_model_and_reports_metrics(tmp_path: Path) -> None:
    model = user_model("gpt2").train()
    seen: list[Mapping[str, float]] = []
    before = snapshot(model)
    run = mxd.train(model, byte_tokenizer(), texts(), data=tmp_path, callbacks=[seen.append], **SIZES, tokens=1024)
    mxd.index(run, list(texts(30, seed=1)), progress=False)
    evaluation = mxd.evaluate(run, list(texts(60, seed=2)), progress=False, resamples=100, prompts=2)
    assert snapshot(model) == before
    assert [metrics["step"] for metrics in seen] == [4, 8, 12, 16]
    assert seen[-1]["normalized_mse"] == pytest.approx(seen[-1]["normalized_mse"])
    assert run.name == "gpt2lmheadmodel-l1-k4"
    assert not evaluation.seen_text
    assert "Loss increase" in evaluation._repr_html_()
    with pytest.raises(mxd.UserError, match="was trained on"):
        mxd.evaluate(run, run.run.config.text, progress=False)


def test_a_callback_stops_training_and_the_same_call_resumes_it(tmp_path: Path) -> None:
    common: dict[str, Any] = {"name": "run", "tokens": 1024, "checkpoint_every": 128, "resume": "if-any"}
    stopped = trained(tmp_path, list(texts()), callbacks=[lambda metrics: metrics["step"] == 8], **common)
    assert not (stopped.run.folder / "layer.safetensors").is_file()
    resumed = trained(tmp_path, list(texts()), **common)
    whole = trained(tmp_path, list(texts()), **(common | {"name": "whole"}))
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))


def test_transcoders_have_directions(tmp_path: Path) -> None:
    run = trained(tmp_path, list(texts(60)), name="tc", method="transcoder", tokens=640)
    assert isinstance(run, mxd.Transcoder)
    x = torch.randn(4, 16)
    torch.testing.assert_close(run.encode(x) @ run.W_dec + run.core.output_bias, run(x))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"learning_rte": 1}, "Unknown setting: learning_rte. Did you mean 'learning_rate'"),
        ({"k_spread": 2}, "Invalid regularization.k_spread: 2"),
        ({"tokens": "many"}, "Invalid tokens: 'many'"),
        ({"layer": 9}, "There is no layer 9"),
        ({"dataset": []}, "The dataset is empty"),
        (
            {"dataset": DatasetDict(train=ROWS, test=ROWS)},
            r"A DatasetDict is not .* dataset\['train'\], dataset\['test'\]",
        ),
        *(
            ({"dataset": dataset}, rf"A {type(dataset).__name__} is not an iterable of texts .* dataset\['text'\]")
            for dataset in ({"text": ["a"]}, ROWS.to_pandas(), ROWS.data.table, ROWS.data.table.to_batches()[0])
        ),
        *(
            ({"dataset": dataset}, "neither text nor token ids")
            for dataset in (
                [3.5],
                ROWS.with_format("pandas").iter(1),
                [[[1, 2], [3]]],
                [np.array([0.0, 1.0])],
                [[2**31]],
            )
        ),
        *(
            ({"dataset": [path], "on_short_text": "repeat"}, f"is the path of a file: '.*{Path(path).name}'")
            for path in (Path("a.txt"), str(HELD))
        ),
        ({"dataset": [{"body": "x"}]}, "no column 'text' or 'input_ids'. It has: 'body'"),
    ],
)
def test_mistakes_are_one_line_errors(tmp_path: Path, keywords: dict[str, Any], message: str) -> None:
    arguments = {"dataset": list(texts(20)), "name": "run"} | keywords
    with pytest.raises(mxd.UserError, match=message):
        trained(tmp_path, **arguments)
    assert not (tmp_path / "runs" / "run").exists()


def test_labels_in_memory_are_read_as_in_files(tmp_path: Path) -> None:
    missing = [("d", math.nan), ("e", None)]
    path = save_labelled([("a", 1.0), ("b", np.int64(2)), ("c", True), *missing, {"text": "f", "label": "x"}], tmp_path)
    read = [(one.text, one.label) for one in read_labelled(path, "text", "label")]
    assert read == [("a", "1"), ("b", "2"), ("c", "true"), ("f", "x")]
    with pytest.raises(mxd.UserError, match="A DataFrame is not an iterable"):
        save_labelled(pd.DataFrame({"text": ["a"], "label": [1]}), tmp_path)


def test_the_dashboard_is_served_with_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, list(texts(40)), name="run", tokens=640)
    with pytest.raises(mxd.UserError, match="Invalid accessible: 'tokens'"):
        mxd.serve(run, accessible="tokens")
    # The schema is made at its first request, which takes seconds on a busy machine.
    with (
        mxd.serve(run) as dashboard,
        httpx.Client(base_url=dashboard.url.removesuffix("/runs/run"), timeout=60) as client,
    ):
        assert [it["name"] for it in client.get("/api/runs").json()["runs"]] == ["run"]
        assert client.get("/openapi.json").json()["openapi"].startswith("3.")
        assert dashboard.url in dashboard._repr_html_()
    with mxd.serve(run, access="tokens", head_bytes=1000) as dashboard:
        write, _ = re.findall(r"mxd_\S+", capsys.readouterr().out)
        url, headers = f"{dashboard.url.removesuffix('/runs/run')}/api/runs", {"Authorization": f"Bearer {write}"}
        assert [httpx.get(f"{url}?{'x' * length}", headers=headers).status_code for length in (10, 2000)] == [200, 431]


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
    held: dict[str, Any] = {"model": user.model, "tokenizer": user.tokenizer}
    train = partial(mxd.train, user.model, user.tokenizer)
    calls: dict[str, Callable[[], object]] = {
        r"Unknown setting: lr\. Did you mean 'learning_rate'": lambda: train(texts(), lr=1.0, **SIZES),
        r"Unknown run 'x'.*Train one with mxd\.train": lambda: mxd.load("x"),
        r'already exists\. Use resume="if-any"': lambda: train(texts(), name="mine", data=user.data, **SIZES),
        r"exceeds the number of experts, 40\. Lower k=": lambda: train(texts(), name="other", **(SIZES | {"k": 41})),
        r'are needed.*on_short_text="repeat"': lambda: train(list(texts(20)), tokens="1M", **SIZES),
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
    run = mxd.train(model, tokenizer, texts(), tokens="2k", name="my-run", **SIZES)
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
