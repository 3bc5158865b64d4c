"""Training, indexing, evaluating and serving from Python."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset, DatasetDict

import mxd
from mxd.api.datasets import save_labelled
from mxd.trainer.data.readers import read_labelled
from tests.api.conftest import texts, user_model
from tests.api.test_attachment import snapshot
from tests.helpers.language_models import byte_tokenizer

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
    with pytest.raises(mxd.UserError, match="Invalid accessible="):
        mxd.serve(run, accessible="tokens")
    with mxd.serve(run) as dashboard, httpx.Client(base_url=dashboard.url.removesuffix("/runs/run")) as client:
        assert [it["name"] for it in client.get("/api/runs").json()["runs"]] == ["run"]
        assert client.get("/openapi.json").json()["openapi"].startswith("3.")
        assert dashboard.url in dashboard._repr_html_()
    with mxd.serve(run, access="tokens", head_bytes=1000) as dashboard:
        write, _ = re.findall(r"mxd_\S+", capsys.readouterr().out)
        url, headers = f"{dashboard.url.removesuffix('/runs/run')}/api/runs", {"Authorization": f"Bearer {write}"}
        assert [httpx.get(f"{url}?{'x' * length}", headers=headers).status_code for length in (10, 2000)] == [200, 431]
