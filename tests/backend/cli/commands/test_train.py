"""``mxd train``: names, resuming, data types, config files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mxd.backend.cli.commands.train import _routing_warning
from mxd.backend.cli.main import run
from mxd.trainer.config import SAMPLE
from mxd.trainer.storage.run import Run, run_names
from mxd.trainer.training import layer_trainer
from mxd.trainer.training.precision import has_bfloat16_units
from mxd.trainer.training.train import TrainResult
from tests.backend.cli.words import Capture, document, train_words


def test_the_name_of_a_run_is_free_after_its_text_was_rejected(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--dataset", "missing.jsonl")) == 2
    assert run(train_words("--name", "small", "--tokens", "90M")) == 2
    capsys.readouterr()
    assert run(train_words("--name", "small", "--json")) == 0
    assert document(capsys)["status"] == "finished"


def test_the_demo_run_is_found_by_its_name(workspace: Path) -> None:
    name = run_names(SAMPLE)[0]
    assert Run.load(name, workspace / "data").folder == SAMPLE / "runs" / name


def test_default_run_names(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--json")) == 0
    assert document(capsys)["run"] == "lm-l1-k4"
    assert run(train_words()) == 2
    assert "Run 'lm-l1-k4' already exists. Use --resume" in capsys.readouterr().err


def test_resuming_requires_only_the_name(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--seed", "3", "--resume")) == 0
    capsys.readouterr()
    assert run(["train", "--name", "small", "--resume", "--json"]) == 0
    assert document(capsys)["tokens"] == 1536
    assert Run.load("small", workspace / "data").config.seed == 3
    assert run(["train", "--name", "small", "--resume", "--seed", "4"]) == 2
    assert "started with another seed" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_dtype(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "half", "--dtype", "bfloat16")) == 0
    assert ("no native support" in capsys.readouterr().err) is not has_bfloat16_units(torch.device("cpu"))
    assert Run.load("half", workspace / "data").config.language_model_dtype == "bfloat16"
    assert run(["train", "--name", "half", "--resume"]) == 0
    capsys.readouterr()
    assert run(["train", "--name", "half", "--resume", "--dtype", "float32"]) == 2
    assert "started with another language_model_dtype" in capsys.readouterr().err


def test_flags_take_precedence_over_the_config_file(workspace: Path, capsys: Capture) -> None:
    settings = {"language-model": "lm", "layer": 9, "dataset": "text.jsonl", "tokens": "1536", "num-experts": 40}
    settings |= {"context_length": 16, "batch_tokens": 64, "buffer_tokens": 512, "k": 3, "learning_rate": 0.02}
    Path("fit.json").write_text(json.dumps(settings))
    Path("fit.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    for file in ("fit.json", "fit.toml"):
        name = Path(file).suffix[1:]
        assert run(["train", "--config", file, "--layer", "1", "--name", name, "--json"]) == 0
        assert document(capsys)["run"] == name
        config = Run.load(name, workspace / "data").config
        assert (config.layer, config.k, config.optimizer.learning_rate) == (1, 3, 0.02)


def test_the_cache_is_filled_once_with_progress_of_its_own(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "first", "--cache", str(workspace / "cache"))) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("Caching activations: 1,536 of 1,536 tokens") for line in lines)
    assert any(line.startswith("Training first: 1,536 of 1,536 tokens") for line in lines)
    assert run(train_words("--name", "second", "--cache", str(workspace / "cache"))) == 0
    assert "Caching" not in capsys.readouterr().err


def trained(routing_share: float | None) -> TrainResult:
    return TrainResult(
        run="small",
        status="finished",
        tokens=1920,
        normalized_mse=0.4,
        dead_share=0.51,
        dead_after_tokens=1920,
        routing_share=routing_share,
        step_tokens=64,
        tokens_per_second=100.0,
    )


def test_a_low_routing_share_is_a_warning(workspace: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [_routing_warning(trained(share)) for share in (0.5, 1.1, float("nan"), None)] == [None] * 4
    monkeypatch.setattr(layer_trainer, "output_routing_share", lambda layer, x_TI, target_TO: 0.04)
    assert run(train_words("--name", "small", "--json")) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["routing_share"] == 0.04
    assert "small: the routing share of the output is only 0.04 on the last 64 tokens" in captured.err
