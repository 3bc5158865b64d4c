"""Fitting: it learns, it can be stopped and killed, and it goes on bit for bit."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.forked import Forked
from tests.language_models import saved_language_model
from tests.runs import World
from trainer.config import TrainConfig
from trainer.errors import UserError
from trainer.fitting import Fit
from trainer.language_model import Capture, LanguageModel
from trainer.layers.mxd import MxD
from trainer.ongoing import DivergedError
from trainer.run import Run, checkpoints
from trainer.store import MetricRecord, RunRecord, open_store, sqlite_url
from trainer.train import TrainResult, train


class StopAfter:
    """Says stop once it has been asked ``steps`` times."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


def fit(world: World, config: TrainConfig, **options: object) -> TrainResult:
    return train(config, world.data, world.store, world.language_model, **options)  # type: ignore[arg-type]


def weights(world: World, name: str) -> dict[str, torch.Tensor]:
    return Run.load(name, world.data).layer.state_dict()


def metrics(world: World, name: str) -> list[MetricRecord]:
    with Session(world.store) as session:
        query = select(MetricRecord).join(RunRecord).where(RunRecord.name == name).order_by(MetricRecord.step)
        return list(session.scalars(query))


def test_it_learns_and_says_so(world: World) -> None:
    result = fit(
        world, world.config(start="paper", tokens=200 * 64, text=world.text.model_copy(update={"when_short": "repeat"}))
    )
    found = metrics(world, "small")
    assert result.status == "finished"
    assert result.tokens == 200 * 64
    assert found[-1].normalised_mse == result.normalised_mse < 0.7 * found[0].normalised_mse
    assert [metric.step for metric in found] == list(range(4, 201, 4))
    with Session(world.store) as session:
        record = session.scalars(select(RunRecord)).one()
        assert (record.status, record.tokens_done, record.num_experts) == ("finished", 200 * 64, 40)


@pytest.mark.parametrize("steps", [1, 5, 8, 13])
def test_stopped_and_resumed_is_bit_for_bit_uninterrupted(world: World, steps: int) -> None:
    fit(world, world.config("whole"))
    stopped = fit(world, world.config("parts"), should_stop=StopAfter(steps))
    assert (stopped.status, stopped.tokens) == ("stopped", steps * 64)
    assert fit(world, world.config("parts"), resume="if-any").status == "finished"
    whole, parts = weights(world, "whole"), weights(world, "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert metrics(world, "whole")[-1].normalised_mse == pytest.approx(metrics(world, "parts")[-1].normalised_mse)


def fit_or_go_on() -> None:
    """In a process of its own: the data folder and the file with the settings are on the command line."""
    config = TrainConfig.model_validate_json(Path(sys.argv[2]).read_text())
    language_model = LanguageModel.load(config.language_model, "cpu")
    train(config, Path(sys.argv[1]), open_store(sqlite_url(Path(sys.argv[1]))), language_model, resume="if-any")


def test_killed_at_any_moment_and_resumed(world: World, tmp_path: Path) -> None:
    folder = saved_language_model(tmp_path / "language-model")
    config = world.config("killed", language_model=str(folder), tokens=400 * 64, log_every=1, checkpoint_every=128)
    config = config.model_copy(update={"text": world.text.model_copy(update={"when_short": "repeat"})})
    (tmp_path / "config.json").write_text(config.model_dump_json())
    words = ["fit", str(world.data), str(tmp_path / "config.json")]
    with Forked(fit_or_go_on, words, tmp_path, os.environ) as process:
        deadline = time.monotonic() + 60
        while len(metrics(world, "killed")) < 20:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    run = Run.load("killed", world.data)
    assert not run.is_fitting
    assert run.last_checkpoint() is not None
    with Forked(fit_or_go_on, words, tmp_path, os.environ) as again:
        said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    fit(world, config.model_copy(update={"name": "whole"}))
    killed, whole = weights(world, "killed"), weights(world, "whole")
    assert all(torch.equal(killed[name], whole[name]) for name in whole)
    assert [metric.step for metric in metrics(world, "killed")] == list(range(1, 401))


@pytest.mark.parametrize("file", ["layer.safetensors", "optimizer.safetensors", "position.json"])
def test_a_checkpoint_that_lost_its_end_is_passed_over(world: World, file: str) -> None:
    fit(world, world.config("whole"))
    fit(world, world.config("parts"), should_stop=StopAfter(13))
    newest, _ = checkpoints(world.data / "runs" / "parts")
    (newest / file).write_bytes((newest / file).read_bytes()[:-9])
    assert fit(world, world.config("parts"), resume="if-any").status == "finished"
    whole, parts = weights(world, "whole"), weights(world, "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_where_every_checkpoint_is_damaged_it_is_said(world: World) -> None:
    fit(world, world.config("parts"), should_stop=StopAfter(13))
    for checkpoint in checkpoints(world.data / "runs" / "parts"):
        (checkpoint / "layer.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"checkpoint-13.*fit the run again"):
        fit(world, world.config("parts"), resume="if-any")


def test_a_finished_run_resumed_stays_as_it_is(world: World) -> None:
    first = fit(world, world.config())
    before = weights(world, "small")
    again = fit(world, world.config(), resume="if-any")
    assert (again.status, again.tokens, again.normalised_mse) == ("finished", first.tokens, first.normalised_mse)
    assert all(torch.equal(before[name], value) for name, value in weights(world, "small").items())


def test_an_existing_run_is_not_overwritten(world: World) -> None:
    fit(world, world.config())
    with pytest.raises(UserError, match="--resume"):
        fit(world, world.config())


def test_resuming_with_other_settings_is_refused(world: World) -> None:
    fit(world, world.config(), should_stop=StopAfter(2))
    with pytest.raises(UserError, match="another k"):
        fit(world, world.config(k=5), resume="if-any")


def test_a_text_that_is_too_short_is_refused_before_anything_is_made(world: World) -> None:
    with pytest.raises(UserError, match="are wanted"):
        fit(world, world.config(tokens=10_000_000, start="paper"))
    assert not list(world.data.rglob("run.json"))
    with Session(world.store) as session:
        assert session.scalars(select(RunRecord)).all() == []


def test_a_text_that_ends_too_soon_fails_the_run_and_keeps_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.train.refuse_short", lambda *_: None)  # as for what is too large to be counted before
    with pytest.raises(UserError, match="repeat"):
        fit(world, world.config(tokens=10_000_000))
    with Session(world.store) as session:
        record = session.scalars(select(RunRecord)).one()
        assert record.status == "failed"
        assert record.error is not None


def test_ranks_are_measured_at_first_between_checkpoints_and_at_the_end(world: World) -> None:
    fit(world, world.config(checkpoint_every=8 * 64))
    fit(world, world.config("other", method="transcoder"))
    assert [metric.step for metric in metrics(world, "small") if metric.stable_rank is not None] == [4, 8, 16, 24]
    last = metrics(world, "small")[-1]
    assert last.normalised_rank == 1.0
    assert last.smallest_scaling is not None and last.smallest_scaling > 0
    assert {metric.stable_rank for metric in metrics(world, "other")} == {None}


def test_a_fit_that_diverges_says_so(world: World) -> None:
    optimizer = world.config().optimizer.model_copy(update={"learning_rate": 1e30})
    with pytest.raises(DivergedError, match="smaller --learning-rate than 1e"):
        fit(world, world.config(optimizer=optimizer))
    with Session(world.store) as session:
        record = session.scalars(select(RunRecord)).one()
        assert record.status == "failed"
        assert "has diverged" in (record.error or "")
    assert not (world.data / "runs" / "small" / "layer.safetensors").exists()


@pytest.mark.parametrize(("log_every", "stops_at"), [(4, 4), (50, 6)])
def test_a_fit_whose_last_step_went_wrong_has_diverged(
    world: World, monkeypatch: pytest.MonkeyPatch, log_every: int, stops_at: int
) -> None:
    step = Fit.step

    def broken(self: Fit, batch: Capture) -> None:
        step(self, batch)
        if self.taken == 4:  # after the error of this step was taken: as yet it is a number
            self.layer.get_parameter("scaling_NO").data.fill_(torch.inf)

    monkeypatch.setattr(Fit, "step", broken)
    with pytest.raises(DivergedError, match=f"diverged: at step {stops_at}"):
        fit(world, world.config(log_every=log_every), should_stop=StopAfter(stops_at))
    with Session(world.store) as session:
        assert session.scalars(select(RunRecord.status)).one() == "failed"


def test_no_such_layer_leaves_nothing_behind(world: World) -> None:
    with pytest.raises(UserError, match="layers 0 to 2"):
        fit(world, world.config(layer=3))
    assert not (world.data / "runs" / "small" / "run.json").exists()


def test_starting_at_the_encoder(world: World) -> None:
    fit(world, world.config(start="encoder", tokens=64))
    layer = Run.load("small", world.data).layer
    assert isinstance(layer, MxD)
    original = world.language_model.encoder_weights(1).weight_HI
    assert (layer.encoder.weight - original).abs().max() < 0.03


def test_output_bias_starts_at_the_mean_and_the_decoder_at_zero(world: World) -> None:
    fit(world, world.config(tokens=64, start="paper"))
    layer = Run.load("small", world.data).layer
    assert isinstance(layer, MxD)
    assert layer.decoder.weight.abs().max() <= 0.0101
    assert layer.output_bias.abs().max() > 0
