"""Training: progress, bit-identical resuming, killed processes, errors; loggers have the metrics of the database."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session
from transformers import PreTrainedTokenizerBase

from mxd.backend.cli.main import run as mxd
from mxd.trainer.config.training import TrainConfig
from mxd.trainer.data import sequences
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.mxd import LayerOutput
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import MetricRecord, RunRecord
from mxd.trainer.storage.run import Run, checkpoints
from mxd.trainer.training import precision
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.train import DivergedError, TrainResult, log_to, resolve_batch, train_layers
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.processes import Forked
from tests.helpers.runs import World, saved_language_model, stop_after, train_layer


def train(world: World, config: TrainConfig, **options: object) -> TrainResult:
    return train_layer(config, world.data, world.database, world.language_model, **options)


def metrics(world: World, name: str) -> list[MetricRecord]:
    with Session(world.database) as session:
        query = select(MetricRecord).join(RunRecord).where(RunRecord.name == name).order_by(MetricRecord.step)
        return list(session.scalars(query))


def test_training_lowers_the_error_and_logs_it(world: World) -> None:
    text = world.text.model_copy(update={"on_short_text": "repeat"})
    result = train(world, world.config(init="random", mixing="paper", tokens=200 * 64, text=text))
    rows = metrics(world, "small")
    assert result.status == "finished"
    assert result.tokens == 200 * 64
    assert rows[-1].normalized_mse == result.normalized_mse < 0.7 * rows[0].normalized_mse
    assert [metric.step for metric in rows] == list(range(4, 201, 4))
    (record,) = world.rows(RunRecord)
    assert (record.status, record.trained_tokens, record.num_experts) == ("finished", 200 * 64, 40)


@pytest.mark.parametrize("method", ["mxd", "batch-topk-mxd"])  # the second has a running threshold
def test_resuming_is_bit_identical(world: World, method: str) -> None:
    expected = train(world, world.config("whole", method=method))
    for steps in (1, 5, 8, 13):
        config = world.config(f"parts-{steps}", method=method)
        stopped = train(world, config, callbacks=stop_after(steps))
        assert (stopped.status, stopped.tokens) == ("stopped", steps * 64)
        assert train(world, config, resume="if-any").status == "finished"
        world.check_same_weights("whole", config.name)
        assert metrics(world, config.name)[-1].normalized_mse == pytest.approx(expected.normalized_mse)


def test_the_precision_is_recorded_and_kept_on_another_machine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run starts where bfloat16 products are fast, and resumes where they are not, and vice versa."""
    monkeypatch.setattr(precision, "MIN_BFLOAT16_PRODUCT_WIDTH", 1)
    for first, kept in ((True, "medium"), (False, "highest")):
        monkeypatch.setattr(precision, "has_bfloat16_units", lambda _device, has=first: has)
        train(world, world.config(f"whole-{kept}"))
        train(world, world.config(kept), callbacks=stop_after(5))
        assert Run.load(kept, world.data).config.optimizer.matmul_precision == kept
        monkeypatch.setattr(precision, "has_bfloat16_units", lambda _device, has=first: not has)
        assert train(world, world.config(kept), resume="if-any").status == "finished"
        world.check_same_weights(f"whole-{kept}", kept)
    assert not torch.equal(*(world.weights(name)["gate.weight"] for name in ("medium", "highest")))


@pytest.mark.parametrize(
    ("device", "tokens", "chosen", "expected"),
    [
        ("cpu", "20M", None, 2048),
        ("cuda:1", "20M", None, 4096),
        ("mps", "20M", None, 4096),
        ("cuda", "4M", None, 512),
        ("cuda", "20M", 2048, 2048),
    ],
)
def test_tokens_per_step_suit_the_device(
    world: World, device: str, tokens: str, chosen: int | None, expected: int
) -> None:
    optimizer = {} if chosen is None else {"batch_tokens": chosen}
    values = world.config().model_dump(exclude_unset=True) | {"tokens": tokens, "optimizer": optimizer}
    config = resolve_batch(TrainConfig.model_validate(values), world.data, torch.device(device))
    assert config.optimizer.batch_tokens == expected
    rate = TrainConfig.model_validate(values).optimizer.learning_rate
    assert config.optimizer.learning_rate == rate == (3e-3 if tokens == "4M" else 9.7e-4)


def test_a_run_keeps_its_tokens_per_step_on_another_device(world: World) -> None:
    train(world, world.config("parts"), callbacks=stop_after(3))
    values = world.config("parts").model_dump(exclude_unset=True) | {"tokens": "20M", "optimizer": {}}
    config = resolve_batch(TrainConfig.model_validate(values), world.data, torch.device("cuda"))
    assert config.optimizer.batch_tokens == 64


def train_or_resume() -> None:
    """Entry point of a separate process; its arguments are the data folder and the settings file."""
    config = TrainConfig.model_validate_json(Path(sys.argv[2]).read_text())
    language_model = LanguageModel.load(config.language_model, "cpu")
    database = open_trainer_database(sqlite_url(Path(sys.argv[1])))
    train_layer(config, Path(sys.argv[1]), database, language_model, resume="if-any")


def test_a_killed_run_resumes(world: World, tmp_path: Path) -> None:
    folder = saved_language_model(tmp_path / "language-model")
    config = world.config("killed", language_model=str(folder), tokens=200 * 64, log_every=1, checkpoint_every=128)
    config = config.model_copy(update={"text": world.text.model_copy(update={"on_short_text": "repeat"})})
    (tmp_path / "config.json").write_text(config.model_dump_json())
    arguments = ["fit", str(world.data), str(tmp_path / "config.json")]
    with Forked(train_or_resume, arguments, tmp_path, os.environ) as process:
        deadline = time.monotonic() + 60
        while len(metrics(world, "killed")) < 20:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    run = Run.load("killed", world.data)
    assert not run.is_training
    assert checkpoints(run.folder)
    with Forked(train_or_resume, arguments, tmp_path, os.environ) as again:
        output = again.communicate(timeout=120)
    assert again.returncode == 0, output
    train(world, config.model_copy(update={"name": "whole"}))
    world.check_same_weights("killed", "whole")
    assert [metric.step for metric in metrics(world, "killed")] == list(range(1, 201))


@pytest.mark.parametrize("has_position", [True, False])
def test_a_resumed_run_tokenises_only_what_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch, has_position: bool
) -> None:
    """Checkpoints of earlier versions have no position in the text."""
    monkeypatch.setattr(sequences, "_BATCH_DOCUMENTS", 2)
    tokenised: list[int] = []
    encode = sequences._token_ids

    def encode_and_count(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
        tokenised.append(len(texts))
        return encode(texts, tokenizer)

    monkeypatch.setattr(sequences, "_token_ids", encode_and_count)
    config = world.config(init="random", mixing="paper")  # which reads no examples
    train(world, config.model_copy(update={"name": "whole"}))
    all_documents = sum(tokenised)
    train(world, config, callbacks=stop_after(20))
    position = checkpoints(world.data / "runs" / "small")[0] / "position.json"
    saved = json.loads(position.read_text())
    assert saved["text"]["documents"] > 0
    if not has_position:
        del saved["text"]
        position.write_text(json.dumps(saved))
    tokenised.clear()
    assert train(world, config, resume="if-any").status == "finished"
    assert (sum(tokenised) < 0.4 * all_documents) == has_position  # of which half were counted first
    world.check_same_weights("whole", "small")


def test_a_damaged_checkpoint_is_skipped_unless_all_are(world: World) -> None:
    train(world, world.config("whole"))
    for number, file in enumerate(("layer.safetensors", "optimizer.safetensors", "position.json")):
        config = world.config(f"parts-{number}")
        train(world, config, callbacks=stop_after(13))
        newest, _ = checkpoints(world.data / "runs" / config.name)
        (newest / file).write_bytes((newest / file).read_bytes()[:-9])
        assert train(world, config, resume="if-any").status == "finished"
        world.check_same_weights("whole", config.name)
    train(world, world.config("parts"), callbacks=stop_after(13))
    for checkpoint in checkpoints(world.data / "runs" / "parts"):
        (checkpoint / "layer.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"checkpoint-13.*train the run again"):
        train(world, world.config("parts"), resume="if-any")


def test_resuming_a_finished_run_changes_nothing(world: World) -> None:
    first = train(world, world.config())
    before = world.weights("small")
    again = train(world, world.config(), resume="if-any")
    assert (again.status, again.tokens, again.normalized_mse) == ("finished", first.tokens, first.normalized_mse)
    torch.testing.assert_close(world.weights("small"), before, rtol=0, atol=0)


def test_a_short_text_is_an_error_before_anything_is_created(world: World) -> None:
    with pytest.raises(UserError, match="are needed"):
        train(world, world.config(tokens=10_000_000, init="random"))
    assert not list(world.data.rglob("run.json"))
    assert world.rows(RunRecord) == []


def test_a_text_that_ends_early_fails_the_run_with_a_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # As for texts that are too large to count.
    monkeypatch.setattr("mxd.trainer.training.train.check_text_length", lambda *_: None)
    with pytest.raises(UserError, match="repeat"):
        train(world, world.config(tokens=10_000_000))
    (record,) = world.rows(RunRecord)
    assert record.status == "failed" and record.error is not None


def test_expert_ranks_are_measured_once_per_checkpoint_and_at_the_end(world: World) -> None:
    train(world, world.config(checkpoint_every=8 * 64))
    train(world, world.config("other", method="transcoder"))
    assert [metric.step for metric in metrics(world, "small") if metric.stable_rank is not None] == [4, 8, 16, 24]
    last = metrics(world, "small")[-1]
    assert last.normalized_rank == 1.0
    assert last.min_scaling is not None and last.min_scaling > 0
    assert {metric.stable_rank for metric in metrics(world, "other")} == {None}


def test_slow_work_takes_a_small_share_of_the_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU trains on millions of tokens while a checkpoint is written and matrices are decomposed."""
    seconds = 0.0
    saved: list[int] = []

    def save(trainer: LayerTrainer, *_words: Any) -> None:
        nonlocal seconds
        saved.append(trainer.step)
        seconds += 0.625

    def step(trainer: LayerTrainer, batch: MlpActivations) -> LayerOutput:
        nonlocal seconds
        seconds += 1.0
        return take_step(trainer, batch)

    take_step = LayerTrainer.train_step
    monkeypatch.setattr("mxd.trainer.training.train.time.monotonic", lambda: seconds)
    monkeypatch.setattr(LayerTrainer, "train_step", step)
    monkeypatch.setattr(LayerTrainer, "save", save)
    train(world, world.config(checkpoint_every=64))
    assert saved == [1, 14, 24]  # 0.625 s are 5 % of 12.5 s; the last one is always written


def break_at(step: int, name: str, parameter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run diverge: a parameter is infinite after the finite error of this step has been added."""
    train_step = LayerTrainer.train_step

    def broken(self: LayerTrainer, batch: MlpActivations) -> None:
        train_step(self, batch)
        if (self.config.name, self.step) == (name, step):
            self.layer.get_parameter(parameter).data.fill_(torch.inf)

    monkeypatch.setattr(LayerTrainer, "train_step", broken)


def test_divergence_is_an_error(world: World) -> None:
    optimizer = world.config().optimizer.model_copy(update={"learning_rate": 1e30})
    with pytest.raises(DivergedError, match="--learning-rate below 1e"):
        train(world, world.config(optimizer=optimizer))
    (record,) = world.rows(RunRecord)
    assert record.status == "failed" and "has diverged" in (record.error or "")
    assert not (world.data / "runs" / "small" / "layer.safetensors").exists()


@pytest.mark.parametrize(("log_every", "stops_at"), [(4, 4), (50, 6)])
def test_divergence_at_the_last_step_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch, log_every: int, stops_at: int
) -> None:
    break_at(4, "small", "scaling_NO", monkeypatch)
    with pytest.raises(DivergedError, match=f"diverged: the loss at step {stops_at}"):
        train(world, world.config(log_every=log_every), callbacks=stop_after(stops_at))
    assert [record.status for record in world.rows(RunRecord)] == ["failed"]


def sweep(world: World, prefix: str) -> list[TrainConfig]:
    """Runs with different methods, K, N, seeds and layers on the same text."""
    return [
        world.config(f"{prefix}-a"),
        world.config(f"{prefix}-b", layer=2, k=2, method="transcoder"),
        world.config(f"{prefix}-c", seed=3, data_seed=0, num_experts=51),
    ]


def train_all(world: World, configs: list[TrainConfig], **options: object) -> list[TrainResult]:
    return train_layers(configs, world.data, world.database, world.language_model, **options)  # type: ignore[arg-type]


def test_each_run_is_bit_identical_to_training_alone(world: World) -> None:
    together = train_all(world, sweep(world, "together"))
    for config, result in zip(sweep(world, "alone"), together, strict=True):
        alone = train(world, config)
        assert (alone.tokens, alone.normalized_mse) == (result.tokens, result.normalized_mse)
        world.check_same_weights(result.run, alone.run)
    assert {record.status for record in world.rows(RunRecord)} == {"finished"}
    assert [metric.step for metric in metrics(world, "together-b")] == list(range(4, 25, 4))


def test_runs_resume_without_a_diverged_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    train_all(world, sweep(world, "whole"))
    break_at(10, "parts-b", "output_bias", monkeypatch)
    with pytest.raises(DivergedError, match="parts-b' has diverged: the loss at step 12"):
        train_all(world, sweep(world, "parts"))
    status = {record.name: record.status for record in world.rows(RunRecord)}
    assert [status[f"parts-{letter}"] for letter in "abc"] == ["stopped", "failed", "stopped"]
    first, _, third = sweep(world, "parts")
    assert {result.status for result in train_all(world, [first, third], resume="if-any")} == {"finished"}
    for letter in "ac":
        world.check_same_weights(f"whole-{letter}", f"parts-{letter}")


def test_runs_that_are_behind_catch_up(world: World) -> None:
    train_all(world, sweep(world, "whole"))
    first, second, third = sweep(world, "parts")
    train_all(world, [first], callbacks=stop_after(13))
    train_all(world, [second], callbacks=stop_after(5))
    train_all(world, [first, second, third], resume="if-any")
    for letter in "abc":
        world.check_same_weights(f"whole-{letter}", f"parts-{letter}")


def test_all_runs_share_one_forward_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[list[int]] = []
    captures = LanguageModel.capture_layers

    def counted(self: LanguageModel, layers: list[int], ids_BT: torch.Tensor) -> object:
        passes.append(list(layers))
        return captures(self, layers, ids_BT)

    monkeypatch.setattr(LanguageModel, "capture_layers", counted)
    train_all(world, sweep(world, "together"))
    assert passes == [[1, 2]] * 3, "three windows; the first also has the examples that experts start as"


def test_an_invalid_run_creates_none_of_the_others(world: World) -> None:
    first, second, _ = sweep(world, "parts")
    with pytest.raises(UserError, match="Lower --k"):
        train_all(world, [first, second.model_copy(update={"k": 41})])
    with pytest.raises(UserError, match="layers 0 to 2"):
        train_all(world, [first, second.model_copy(update={"layer": 3})])
    with pytest.raises(UserError, match="2 runs have the name 'parts-a'"):
        train_all(world, [first, first])
    assert not list((world.data / "runs").glob("*/run.json"))
    train(world, second)
    with pytest.raises(UserError, match="'parts-b' already exists"):
        train_all(world, [first, second])
    assert [record.name for record in world.rows(RunRecord)] == ["parts-b"]


AT_EVERY_STEP = {"tokens", "tokens_per_second", "seconds", "normalized_mse", "l0", "max_density", "dead_share"}
MEASURED = AT_EVERY_STEP | {"normalized_rank", "stable_rank", "min_singular_value", "min_scaling"}
"""The ranks are left out of some steps if they are slow beside the training."""


def stored(world: World, name: str) -> dict[int, float]:
    """Normalised MSE by step, from the database."""
    return {row.step: row.normalized_mse for row in metrics(world, name)}


def events(world: World, name: str) -> dict[str, dict[int, float]]:
    """Scalars of a run as TensorBoard reads them, by metric and step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(world.data / "runs" / name / "tensorboard")).Reload()
    return {tag: {event.step: event.value for event in read.Scalars(tag)} for tag in read.Tags()["scalars"]}


def test_tensorboard_has_the_metrics_of_the_database_also_after_resuming(world: World) -> None:
    log = log_to("tensorboard")
    assert train(world, world.config(), log=log, callbacks=stop_after(10)).status == "stopped"
    train(world, world.config(), log=log, resume="if-any")
    scalars = events(world, "small")
    assert scalars.keys() == {f"train/{name}" for name in MEASURED}
    assert scalars["train/normalized_mse"] == pytest.approx(stored(world, "small"), rel=1e-6)
    assert set(scalars["train/normalized_mse"]) >= {4, 8, 12, 16, 20, 24}


def fake_module(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Mock]:
    """Replace the module by a fake. Returns the list of runs that it starts."""
    started: list[Mock] = []

    def init(**settings: Any) -> Mock:
        started.append(Mock(settings=settings))
        return started[-1]

    monkeypatch.setitem(sys.modules, name, Mock(init=init))
    return started


def logged(run: Mock) -> dict[int, dict[str, float]]:
    """Metrics by step of a log that was closed once, at its end."""
    *logs, last = run.mock_calls
    assert last == call.finish()
    return {each.kwargs["step"]: each.args[0] for each in logs}


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_runs_trained_together_have_a_log_each(name: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    started = fake_module(name, monkeypatch)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    configs = [world.config(name="a"), world.config(name="b", k=2)]
    train_all(world, configs, log=log_to(name))
    assert [run.settings["name"] for run in started] == ["a", "b"]
    for run, config in zip(started, configs, strict=True):
        metrics_of = logged(run)
        assert {step: metrics["normalized_mse"] for step, metrics in metrics_of.items()} == stored(world, config.name)
        assert all(metrics.keys() in (AT_EVERY_STEP, MEASURED) for metrics in metrics_of.values())
        assert set().union(*metrics_of.values()) == MEASURED
        assert run.settings["project"] == "mxd-explorer"
        assert run.settings["config"]["k"] == config.k


def test_wandb_resumes_a_run_under_the_same_id_and_a_failed_one_closes_its_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = fake_module("wandb", monkeypatch)
    config, log = world.config(), log_to("wandb")

    def enough(done: int, _total: int, _note: str) -> None:
        if done > 512:
            raise UserError("That was enough.")

    with pytest.raises(UserError, match="enough"):
        train(world, config, callbacks=Callbacks(on_progress=enough), log=log)
    train(world, config, log=log, resume="if-any")
    first, second = started
    assert first.settings["id"] == second.settings["id"]
    assert first.settings["id"].startswith("small-")
    assert max(logged(first)) < min(logged(second)) == 12


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_missing_package_is_reported_before_loading(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = "torch.utils.tensorboard.writer" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, missing, None)
    command = ["train", str(saved_language_model(tmp_path / "lm")), "--layer", "1", "--dataset", world.text.dataset]
    more = ["--tokens", "1536", "--context-length", "16", "--data", str(world.data), "--log", name]
    assert mxd([*command, *more]) == 2
    assert f"pip install 'mxd-explorer[{name}]'" in capsys.readouterr().err
    assert not (world.data / "runs").exists()
