"""``mxd train --plan``, and runs that do not fit in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import BloomConfig

from mxd.backend.cli.main import run
from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.training.layer_trainer import LayerTrainer, Placement
from mxd.trainer.utils.distributed import ProcessGroup
from tests.backend.cli.words import Capture, train_words
from tests.helpers.language_models import saved_language_model, tiny_language_model


@pytest.fixture
def words(workspace: Path) -> list[str]:
    """Command line that trains a run of 24 steps."""
    return train_words("--data", "new")


def test_a_plan_is_a_dry_run(words: list[str], capsys: Capture) -> None:
    assert run([*words, "--plan", "--json", "--processes", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["processes"], found["refusal"]) == (1536, 2, None)
    assert found["layers"][0]["num_experts"] == 40
    assert sum(found["memory"].values()) == found["memory_total"]
    assert run([*words, "--plan"]) == 0
    said = capsys.readouterr().out
    assert "N 40, K 4" in said
    assert "tokens/s" in said
    assert not Path("new").exists()


def test_a_plan_for_another_machine_ends_in_a_command(words: list[str], capsys: Capture) -> None:
    assert run([*words, "--plan", "--device", "h100", "--processes=4", "--nodes", "2", "--k", "8"]) == 0
    said = capsys.readouterr().out
    assert "averaging gradients" in said
    recommended = said.splitlines()[-1].partition("  ")[2].partition("  ")[2]
    assert "torchrun --nproc-per-node 2 -m mxd train" in recommended, "two runs"
    assert recommended.endswith(" ".join([*words, "--k", "8", "--parallel", "runs"]))


@pytest.mark.parametrize("more", [[], ["--plan"]])
def test_runs_that_do_not_fit_in_memory_are_rejected_before_loading(
    words: list[str], more: list[str], capsys: Capture
) -> None:
    Path("lm/model.safetensors").unlink()
    words[words.index("40")] = "200M"
    assert run([*words, *more]) == 2
    said = capsys.readouterr()
    assert "GB are free. --num-experts" in said.err
    assert bool(said.out) == bool(more)
    assert not Path("new").exists()


def _quantised(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    (folder / "config.json").write_text(json.dumps(config))


def _without_a_shard(folder: Path) -> None:
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")


def _short_positions(folder: Path) -> None:
    saved_language_model(folder, "gpt2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"n_positions": 8}))


def _two_arguments(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    BloomConfig(hidden_size=16, n_layer=3, n_head=2, vocab_size=257).save_pretrained(folder)


@pytest.mark.parametrize(
    ("spoil", "more", "message"),
    [
        (_quantised, [], "lm needs a package that is not installed: Loading a GPTQ quantized model requires"),
        (_without_a_shard, [], "model-00002-of-00002.safetensors: named in model.safetensors.index.json, but not in"),
        (_pickled, [], "pytorch_model.bin: pickled weights can run code. Supported are .safetensors files"),
        (_pointer, [], "the header of model.safetensors cannot be read"),
        (_short_positions, [], "lm, 8 tokens. It has no embeddings for further positions"),
        (_two_arguments, [], "it needs 2 inputs (hidden_states, residual)"),
        (None, ["--method", "molt", "--init", "examples"], "A molt cannot be initialised from examples"),
    ],
)
def test_a_plan_rejects_what_training_rejects(
    words: list[str], spoil: Callable[[Path], None] | None, more: list[str], message: str, capsys: Capture
) -> None:
    if spoil is not None:
        spoil(Path("lm"))
    said = []
    for plan in (["--plan"], []):
        assert run([*words, *more, *plan]) == 2
        said.append(capsys.readouterr().err)
    assert message in said[0]
    assert said[0] == said[1].splitlines(keepends=True)[-1]
    assert not Path("new/runs").exists()


def test_methods_that_need_whole_steps_need_one_process(words: list[str], capsys: Capture) -> None:
    method = "batch-topk-mxd"
    assert run([*words, "--method", method, "--plan", "--processes", "2"]) == 2
    assert f"A {method} needs a single process" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"A {method} needs a single process"):
        LayerTrainer.create(small_config(method), tiny_language_model(), 24, Placement(ProcessGroup(0, 2)))


def small_config(method: str) -> TrainConfig:
    text = {"dataset": "text.jsonl", "context_length": 16}
    return TrainConfig.model_validate(
        {"name": "r", "language_model": "lm", "layer": 1, "text": text, "tokens": 1536, "method": method, "k": 4}
    )
