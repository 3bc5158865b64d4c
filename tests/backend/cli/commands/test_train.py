"""``mxd train``, ``finetune``, ``lab train`` and ``lab protect``: names, sweeps, resuming, plans, rejected input."""

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from mxd.backend.cli.commands.lab import LabTrainCommand
from mxd.backend.cli.commands.train import TrainCommand
from mxd.backend.cli.main import run
from mxd.backend.cli.parser import options
from mxd.trainer.config.training import TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.storage.run import Run, run_names
from mxd.trainer.training import layer_trainer
from mxd.trainer.training.layer_trainer import LayerTrainer, Placement
from mxd.trainer.training.precision import has_bfloat16_units
from mxd.trainer.utils.distributed import ProcessGroup
from tests.backend.cli.conftest import Capture, document, output, rejected, train_words
from tests.helpers.runs import (
    saved,
    saved_language_model,
    small_world,
    sure_language_model,
    tiny_language_model,
    train_layer,
)


def test_resuming_requires_only_the_name_and_keeps_the_settings(workspace: Path, capsys: Capture) -> None:
    for mistake in (("--dataset", "missing.jsonl"), ("--tokens", "90M")):
        assert run(train_words("--name", "small", *mistake)) == 2, "the name stays free"
    settings = ("--seed", "3", "--dtype", "bfloat16", "--resume")
    capsys.readouterr()
    assert run(train_words("--name", "small", *settings)) == 0
    assert ("no native support" in capsys.readouterr().err) is not has_bfloat16_units(torch.device("cpu"))
    found = document(capsys, "train", "--name", "small", "--resume")
    assert (found["tokens"], found["status"]) == (1536, "finished")
    assert run(["train", "--name", "small", "--resume", "--data-seed", "3"]) == 0, "the default, written out"
    config = Run.load("small", workspace / "data").config
    assert (config.seed, config.language_model_dtype) == (3, "bfloat16")
    for flag, value, name in (("--seed", "4", "seed"), ("--dtype", "float32", "language_model_dtype")):
        assert f"started with another {name}" in rejected(capsys, "train", "--name", "small", "--resume", flag, value)
        assert not [file for file in psutil.Process().open_files() if file.path.startswith(str(workspace))], (
            "closed after an error"
        )


def test_flags_take_precedence_over_the_config_file(workspace: Path, capsys: Capture) -> None:
    settings = {"language-model": "lm", "layer": 9, "dataset": "text.jsonl", "tokens": "1536", "num-experts": 40}
    settings |= {"context_length": 16, "batch_tokens": 64, "buffer_tokens": 512, "k": 3, "learning_rate": 0.02}
    Path("fit.json").write_text(json.dumps(settings))
    Path("fit.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    for file in ("fit.json", "fit.toml"):
        name = Path(file).suffix[1:]
        assert document(capsys, "train", "--config", file, "--layer", "1", "--name", name)["run"] == name
        config = Run.load(name, workspace / "data").config
        assert (config.layer, config.k, config.optimizer.learning_rate) == (1, 3, 0.02)


def test_a_low_routing_share_is_a_warning(workspace: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for share, is_low in ((0.04, True), (0.5, False)):
        monkeypatch.setattr(layer_trainer, "output_routing_share", lambda layer, x_TI, target_TO, share=share: share)
        assert run(train_words("--name", f"share-{share}", "--json")) == 0
        captured = capsys.readouterr()
        assert json.loads(captured.out)["routing_share"] == share
        said = f"share-{share}: the routing share of the output is only 0.04 on the last 64 tokens"
        assert (said in captured.err) == is_low
        assert ("routing share" in captured.err) == is_low


@pytest.fixture
def words(workspace: Path) -> list[str]:
    """Command line that trains a run of 24 steps."""
    return train_words("--data", "new")


def test_a_plan_is_a_dry_run(words: list[str], capsys: Capture) -> None:
    found = document(capsys, *words, "--plan", "--processes", "2")
    assert (found["tokens"], found["processes"], found["refusal"]) == (1536, 2, None)
    assert found["layers"][0]["num_experts"] == 40
    assert sum(found["memory"].values()) == found["memory_total"]
    said = output(capsys, *words, "--plan")
    assert "N 40, K 4" in said
    assert "tokens/s" in said
    assert not Path("new").exists()


def test_a_plan_for_another_machine_ends_in_a_command(words: list[str], capsys: Capture) -> None:
    said = output(capsys, *words, "--plan", "--device", "h100", "--processes=4", "--nodes", "2", "--k", "8")
    assert "averaging gradients" in said
    recommended = said.splitlines()[-1].partition("  ")[2].partition("  ")[2]
    assert "torchrun --nproc-per-node 2 -m mxd train" in recommended, "two runs"
    assert recommended.endswith(" ".join([*words, "--k", "8", "--parallel", "runs"]))


@pytest.mark.parametrize("more", [[], ["--plan"]])
def test_runs_that_do_not_fit_are_rejected_before_loading(words: list[str], more: list[str], capsys: Capture) -> None:
    Path("lm/model.safetensors").unlink()
    words[words.index("40")] = "200M"
    assert run([*words, *more]) == 2
    said = capsys.readouterr()
    assert "GB are free. --num-experts" in said.err
    assert bool(said.out) == bool(more)
    assert not Path("new").exists()


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
INDEX = '{"metadata": {}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}'
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
WEIGHTS = "model.safetensors"


@pytest.mark.parametrize(
    ("family", "config", "files", "message"),
    [
        ("llama", {"quantization_config": GPTQ}, {}, "lm needs a package that is not installed: Loading a GPTQ"),
        ("llama", {}, {WEIGHTS: None, f"{WEIGHTS}.index.json": INDEX}, f"named in {WEIGHTS}.index.json, but not in"),
        ("llama", {}, {WEIGHTS: None, "pytorch_model.bin": ""}, "pytorch_model.bin: pickled weights can run code."),
        ("llama", {}, {WEIGHTS: POINTER}, f"the header of {WEIGHTS} cannot be read"),
        ("gpt2", {"n_positions": 8}, {}, "lm, 8 tokens. It has no embeddings for further positions"),
        ("llama", {}, {}, "A molt cannot be initialised from examples"),
    ],
)
def test_a_plan_rejects_what_training_does(
    words: list[str], capsys: Capture, family: str, config: dict[str, Any], files: dict[str, str | None], message: str
) -> None:
    folder = saved_language_model(Path("lm"), family)
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(known | config))
    for name, content in files.items():
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_text(content)
    more = [] if config or files else ["--method", "molt", "--init", "examples"]
    said = []
    for plan in (["--plan"], []):
        said.append(rejected(capsys, *words, *more, *plan))
    assert message in said[0]
    assert said[0] == said[1].splitlines(keepends=True)[-1]
    assert not Path("new/runs").exists()


def test_methods_that_need_whole_steps_need_one_process(words: list[str], capsys: Capture) -> None:
    method: Any = "batch-topk-mxd"
    said = rejected(capsys, *words, "--method", method, "--plan", "--processes", "2")
    assert f"A {method} needs a single process" in said
    text = TextConfig(dataset="text.jsonl", context_length=16)
    config = TrainConfig(name="r", language_model="lm", layer=1, text=text, tokens=1536, method=method, k=4)
    with pytest.raises(UserError, match=f"A {method} needs a single process"):
        LayerTrainer.create(config, tiny_language_model(), 24, Placement(ProcessGroup(0, 2)))


def sweep_words(*more: str) -> list[str]:
    """Return a command line that trains runs of 8 steps."""
    fixed = "train lm --dataset text.jsonl --context-length 16 --batch-tokens 64 --buffer-tokens 512 --tokens 512"
    return [*fixed.split(), *more]


def test_a_frontier_in_one_pass(workspace: Path, capsys: Capture) -> None:
    words = sweep_words(
        "--layer", "1", "--k", "2,4", "--method", "mxd,transcoder", "--num-experts", "40", "--name", "f-{method}"
    )
    found = document(capsys, *words)
    names = ["f-mxd-k2", "f-mxd-k4", "f-transcoder-k2", "f-transcoder-k4"]
    assert [result["run"] for result in found] == names
    assert run_names(workspace / "data") == names
    assert "Run 'f-mxd-k2' already exists" in rejected(capsys, *words)
    assert document(capsys, *words, "--resume")[0]["normalized_mse"] == found[0]["normalized_mse"]
    assert document(capsys, "train", "--name", "f-mxd-k4", "--resume")["run"] == "f-mxd-k4"


def test_layers_seeds_and_sizes(workspace: Path, capsys: Capture) -> None:
    settings = {"layer": [0, 2], "seed": [5, 6], "k": 4, "num-experts": ["40", "auto"], "learning-rate": 0.02}
    Path("fit.json").write_text(json.dumps(settings))  # one value or several
    names = {result["run"] for result in document(capsys, *sweep_words("--config", "fit.json"))}
    assert len(names) == 8
    assert {"lm-l0-k4-n40-s5", "lm-l2-k4-nauto-s6"} <= names
    config = Run.load("lm-l2-k4-n40-s6", workspace / "data").config
    assert (config.layer, config.num_experts, config.seed, config.data_seed) == (2, 40, 6, 5)
    assert config.optimizer.learning_rate == 0.02
    assert Run.load("lm-l2-k4-n40-s5", workspace / "data").config.data_seed is None


def trained_runs(folder: Path, runs: dict[str, tuple[int, Path]]) -> Path:
    """A data folder with short runs: name -> layer, and folder of the language model."""
    world = small_world(folder)
    for name, (layer, source) in runs.items():
        config = world.config(name, layer=layer, language_model=str(source), tokens=128)
        train_layer(config, world.data, world.database, world.language_model)
    world.database.dispose()
    return world.data


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data folder with runs of layers 0 and 1, and passages to protect."""
    folder = tmp_path_factory.mktemp("protect")
    here = saved(sure_language_model(), folder / "language-model")
    (folder / "passages.txt").write_text("the red fox sang\n\nthe old dog sat and sang\n")
    return trained_runs(folder, {"a": (0, here), "b": (1, here)})


def test_new_runs_are_written_and_resumed_with_their_settings(tmp_path: Path, capsys: Capture) -> None:
    language_model = saved_language_model(tmp_path / "language-model")
    place = trained_runs(tmp_path, {"a": (0, language_model), "b": (1, language_model)})

    def finetune(line: str) -> list[str]:
        return ["finetune", *line.split(), "--data", str(place), "--device", "cpu"]

    text = f"--dataset {tmp_path / 'text.jsonl'} --tokens 256"
    settings = f"{text} --batch-tokens 64 --learning-rate 1e-3"
    found = document(capsys, *finetune(f"a b {settings}"))
    assert [one["run"] for one in found["runs"]] == ["a-whole", "b-whole"]
    assert found["kl_first"] > 0
    made = Run.load("b-whole", place).config
    assert (made.parents, made.tokens, made.optimizer.learning_rate) == (("b", "a"), 256, 1e-3)
    assert made.text.context_length == 16
    assert "b-whole: 256 tokens" in output(capsys, *finetune("a b --resume"))
    for line, sentence in (
        (f"a b {settings}", "Run 'a-whole' already exists."),
        ("a b", "Missing --dataset and --tokens."),
        (f"a nobody {text}", "Unknown run 'nobody'."),
    ):
        said = rejected(capsys, *finetune(line))
        assert sentence in said
        assert len(said.splitlines()) == 1


def test_experimental_runs_are_trained_and_resumed_in_the_lab_alone(workspace: Path, capsys: Capture) -> None:
    core, lab = options(TrainCommand), options(LabTrainCommand)
    assert lab.keys() - core.keys() == {"constant_weight", "diversity_weight", "freeze", "inputs"}
    assert ("hidden-mxd" in lab["method"].value, "hidden-mxd" in core["method"].value) == (True, False)
    given = ["--method", "low-rank-mxd,mxd", "--rank", "3", "--diversity-weight", "0.1", "--name", "a"]
    assert run(["lab", *train_words("--tokens", "512", *given)]) == 0
    assert run(["lab", "train", "--name", "a-mxd", "--resume"]) == 0
    ranks = [Run.load(f"a-{method}", workspace / "data").config.rank for method in ("low-rank-mxd", "mxd")]
    assert ranks == [3, None]
    said = rejected(capsys, "train", "--name", "a-mxd", "--resume")
    assert "Run 'a-mxd' has experimental settings. Use 'mxd lab train'." in said


SHORT = "--tokens 1024 --batch-tokens 64 --learning-rate 0.003 --max-added-loss 5 --attack-steps 1"


def protect_words(private: Path, line: str, passages: str = "passages.txt") -> list[str]:
    """Return a command line: names and further flags, of which the last counts."""
    files = f"--passages {private.parent / passages} --retain {private.parent / 'text.jsonl'} --data {private}"
    return ["lab", "protect", *files.split(), *SHORT.split(), *line.split(), "--device", "cpu"]


def test_private_runs_are_written_and_measured(private: Path, capsys: Capture) -> None:
    found = document(capsys, *protect_words(private, "b a --steps 3"))
    assert found["runs"] == ["a-private", "b-private"]
    assert found["protected"]["after"]["entropy"] > found["protected"]["before"]["entropy"]
    assert Run.load("b-private", private).config.parents == ("b", "a")
    assert "Run 'a-private' already exists." in rejected(capsys, *protect_words(private, "a --steps 3"))


@pytest.mark.parametrize(
    ("content", "line", "sentence"),
    [
        ("red", "--skip-tokens 90", "Make it longer"),
        ("the old dog sang", "--tokens 64", "at least 8 are needed"),
        ("the old dog sang", "--theta 1", "theta"),
        ("the old dog sang", "--name a", "Run 'a' already exists."),
        ("the old dog sang", "--name a/b", "Invalid run name: 'a/b'."),
        ("the old dog " * 60, "", "Shorten the text"),
    ],
)
def test_invalid_protection_is_one_line(private: Path, capsys: Capture, content: str, line: str, sentence: str) -> None:
    (private.parent / "others.txt").write_text(content)
    before = sorted((private / "runs").iterdir())
    assert run(protect_words(private, f"a --name {{run}}-new {line}", "others.txt")) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert sentence in seen.err
    assert "Traceback" not in seen.err
    assert sorted((private / "runs").iterdir()) == before
