"""``mxd train``: names, sweeps, resuming, data types, config files, plans, and runs that do not fit in memory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BloomConfig

from mxd.backend.cli.commands.train import _routing_warning
from mxd.backend.cli.main import run
from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.storage.run import Run, run_names
from mxd.trainer.training import layer_trainer
from mxd.trainer.training.layer_trainer import LayerTrainer, Placement
from mxd.trainer.training.precision import has_bfloat16_units
from mxd.trainer.training.train import TrainResult
from mxd.trainer.utils.distributed import ProcessGroup
from tests.backend.cli.words import Capture, document, train_words
from tests.helpers.language_models import saved_language_model, tiny_language_model


def test_the_name_of_a_run_is_free_after_its_text_was_rejected(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--dataset", "missing.jsonl")) == 2
    assert run(train_words("--name", "small", "--tokens", "90M")) == 2
    capsys.readouterr()
    assert run(train_words("--name", "small", "--json")) == 0
    assert document(capsys)["status"] == "finished"


def test_resuming_requires_only_the_name(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--seed", "3", "--resume")) == 0
    capsys.readouterr()
    assert run(["train", "--name", "small", "--resume", "--json"]) == 0
    assert document(capsys)["tokens"] == 1536
    assert Run.load("small", workspace / "data").config.seed == 3
    assert run(["train", "--name", "small", "--resume", "--data-seed", "3"]) == 0, "the default, written out"
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


def sweep_words(*more: str) -> list[str]:
    """Return a command line that trains runs of 8 steps."""
    fixed = "train lm --dataset text.jsonl --context-length 16 --batch-tokens 64 --buffer-tokens 512 --tokens 512"
    return [*fixed.split(), *more]


def test_a_frontier_in_one_pass(workspace: Path, capsys: Capture) -> None:
    words = sweep_words(
        "--layer", "1", "--k", "2,4", "--method", "mxd,transcoder", "--num-experts", "40", "--name", "f-{method}"
    )
    assert run([*words, "--json"]) == 0
    found = document(capsys)
    names = ["f-mxd-k2", "f-mxd-k4", "f-transcoder-k2", "f-transcoder-k4"]
    assert [result["run"] for result in found] == names
    assert run_names(workspace / "data") == names
    assert run(words) == 2
    assert "Run 'f-mxd-k2' already exists" in capsys.readouterr().err
    assert run([*words, "--resume", "--json"]) == 0
    assert document(capsys)[0]["normalized_mse"] == found[0]["normalized_mse"]
    assert run(["train", "--name", "f-mxd-k4", "--resume", "--json"]) == 0
    assert document(capsys)["run"] == "f-mxd-k4"


def test_layers_seeds_and_sizes(workspace: Path, capsys: Capture) -> None:
    words = ["--layer", "0,2", "--k", "4", "--seed", "5,6", "--num-experts", "40", "--num-experts", "auto"]
    assert run(sweep_words(*words, "--json")) == 0
    names = {result["run"] for result in document(capsys)}
    assert len(names) == 8
    assert {"lm-l0-k4-n40-s5", "lm-l2-k4-nauto-s6"} <= names
    config = Run.load("lm-l2-k4-n40-s6", workspace / "data").config
    assert (config.layer, config.num_experts, config.seed, config.data_seed) == (2, 40, 6, 5)
    assert Run.load("lm-l2-k4-n40-s5", workspace / "data").config.data_seed is None


def test_config_files_may_hold_one_value_or_several(workspace: Path, capsys: Capture) -> None:
    settings = {"k": [2, 3], "layer": 1, "num-experts": ["40"], "learning-rate": 0.02}
    Path("fit.json").write_text(json.dumps(settings))
    assert run(sweep_words("--config", "fit.json", "--json")) == 0
    assert [result["run"] for result in document(capsys)] == ["lm-l1-k2", "lm-l1-k3"]
    assert Run.load("lm-l1-k3", workspace / "data").config.optimizer.learning_rate == 0.02
