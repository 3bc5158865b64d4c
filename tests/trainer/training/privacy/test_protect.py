"""Privacy fine-tuning of a tiny model: trained parameters, measurements, saved runs, errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.config.privacy import ProtectConfig
from mxd.trainer.data.sequences import sequences
from mxd.trainer.errors import UserError
from mxd.trainer.layers.registry import load_layer
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord
from mxd.trainer.storage.run import Run, runs_folder
from mxd.trainer.storage.run_sets import check_compatible_runs, names_of
from mxd.trainer.training.privacy.metrics import kl_from_uniform
from mxd.trainer.training.privacy.optimizer import PrivacyData, PrivacyOptimizer
from mxd.trainer.training.privacy.passages import Passage, encode
from mxd.trainer.training.privacy.protect import Protection, ProtectionOutcome, run_protection
from mxd.trainer.training.privacy.replacement import ReplacementModel
from mxd.trainer.training.privacy.save import write_outcome
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.language_models import sure_language_model
from tests.helpers.runs import World, small_world

PASSAGES = (
    Passage("the red fox sang and the blue dog sang", ("and so sang the fox that was red",)),
    Passage("a very very old dog sat and the fox ran"),
    Passage("blue and red and old and blue sat the dog"),
)
MOVED = {"scaling_NO", "gate.weight", "gate.bias"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """MxDs of layers 1 and 2, and a transcoder."""
    world = replace(small_world(tmp_path_factory.mktemp("privacy")), language_model=sure_language_model())
    for name, changes in (("one", {}), ("two", {"layer": 2}), ("other", {"layer": 0, "method": "transcoder"})):
        train_layer(world.config(name, **changes), world.data, world.database, world.language_model)
    yield world
    world.database.dispose()


def config(**changes: Any) -> ProtectConfig:
    settings = {
        "steps": 8,
        "learning_rate": 0.01,
        "batch_tokens": 64,
        "check_every": 2,
        "max_added_loss": 5.0,
        "attack_steps": 2,
    }
    return ProtectConfig.model_validate(settings | changes)


def other_text(world: World, tokens: int = 1024) -> torch.Tensor:
    comparison = sequences(world.text, world.language_model.tokenizer, tokens, 0, "as-is")
    return torch.from_numpy(np.stack(list(comparison))).long()


def protection(
    world: World, settings: ProtectConfig, runs: Sequence[str] = ("one",), pattern: str = "{run}-private"
) -> Protection:
    loaded = [Run.load(name, world.data) for name in runs]
    names = names_of(loaded, pattern)
    return Protection(world.language_model, loaded, names, PASSAGES, other_text(world), settings)


def write(world: World, outcome: ProtectionOutcome, settings: ProtectConfig) -> dict[str, Any]:
    runs = [Run.load(name, world.data) for name in outcome.result.parents]
    return write_outcome(runs, outcome, settings, "text.jsonl", world.data, world.database)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_layer(folder).state_dict()


def test_only_c_and_the_gate_are_trained(trained: World) -> None:
    files = {path: path.read_bytes() for path in runs_folder(trained.data).glob("*/*.*") if path.is_file()}
    original = {name: value.clone() for name, value in trained.language_model.module.state_dict().items()}
    settings = config()
    outcome = run_protection(protection(trained, settings))
    result = write(trained, outcome, settings)
    before, after = (weights(runs_folder(trained.data) / name) for name in ("one", "one-private"))
    assert {name for name in before if not torch.equal(before[name], after[name])} == MOVED
    now = trained.language_model.module.state_dict()
    assert all(torch.equal(value, now[name]) for name, value in original.items())
    assert all(path.read_bytes() == content for path, content in files.items())
    comparison = outcome.result.protected
    assert comparison.after.confidence_distance < comparison.before.confidence_distance
    assert comparison.after.entropy > comparison.before.entropy
    assert list(outcome.result.variations) == ["given", "later beginning", "swapped case"]
    assert outcome.result.relearning is not None
    assert outcome.result.relearning.passages == 1
    new_run = Run.load("one-private", trained.data)
    assert (new_run.config.parents, new_run.config.privacy) == (("one",), settings)
    with Session(trained.database) as session:
        record = session.scalars(select(EvaluationRecord)).one()
        assert record.subject == "privacy: one-private"
        assert session.scalars(select(RunRecord.status).where(RunRecord.name == "one-private")).one() == "finished"
        assert record.result == result
        written = f"{record.result}{record.settings}{record.text}"
    assert not any(passage.text in written for passage in PASSAGES)
    with pytest.raises(UserError, match="Run 'one-private' already exists"):
        write(trained, outcome, settings)


def test_several_layers_are_trained_jointly(trained: World) -> None:
    settings = config(steps=2)
    outcome = run_protection(protection(trained, settings, runs=("one", "two")))
    assert outcome.result.runs == ("one-private", "two-private")
    for index, name in ((1, "one"), (2, "two")):
        before, after = weights(runs_folder(trained.data) / name), outcome.model.layers[index].state_dict()
        assert {key for key in before if not torch.equal(before[key], after[key])} == MOVED


def test_the_best_step_is_the_least_confident_within_the_loss_limit(trained: World) -> None:
    settings = config(steps=12, max_added_loss=0.02)
    outcome = run_protection(protection(trained, settings))
    allowed = [one for one in outcome.result.eval_points if one.loss_increase <= 0.02]
    least = min(allowed, key=lambda one: one.protected.confidence_distance)
    assert outcome.result.best_step == least.step
    assert outcome.result.protected.after == least.protected


def test_an_error_if_no_step_helps(trained: World) -> None:
    with pytest.raises(UserError, match="No step reduced the confidence"):
        run_protection(protection(trained, config(steps=2, learning_rate=1e-12)))


def test_cancelling_writes_nothing(trained: World) -> None:
    runs_before = sorted(runs_folder(trained.data).iterdir())
    answers = iter([False, False, True])
    with pytest.raises(UserError, match="nothing was written"):
        run_protection(protection(trained, config()), callbacks=Callbacks(is_cancelled=lambda: next(answers)))
    assert sorted(runs_folder(trained.data).iterdir()) == runs_before


def test_a_failed_write_leaves_no_partial_run(trained: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config()
    outcome = run_protection(protection(trained, settings, pattern="{run}-half"))
    monkeypatch.setattr("mxd.trainer.training.privacy.save.copy_tokenizer", _fail)
    runs_before = sorted(runs_folder(trained.data).iterdir())
    with pytest.raises(RuntimeError):
        write(trained, outcome, settings)
    assert sorted(runs_folder(trained.data).iterdir()) == runs_before


def _fail(_source: Path, _target: Path) -> None:
    raise RuntimeError("the power is off")


def test_the_gradient_equals_finite_differences(trained: World) -> None:
    model = ReplacementModel.from_runs(trained.language_model, [Run.load("one", trained.data)])
    text = encode(trained.language_model, [passage.text for passage in PASSAGES], skip_tokens=2)
    _, gradient = model.gradient(text, lambda logits_PV, _next_P: kl_from_uniform(logits_PV), 0.75)
    place = next(place for place, one in enumerate(model.trainable_parameters()) if one is model.layers[1].table)
    values, size = model.snapshot(), 0.005
    direction = gradient[place] / gradient[place].norm()
    ends = []
    for sign in (1, -1):
        model.load([it + sign * size * direction if n == place else it for n, it in enumerate(values)])
        ends.append(model.gradient(text, lambda logits_PV, _next_P: kl_from_uniform(logits_PV), 0.75)[0])
    slope = 0.75 * (ends[0] - ends[1]) / (2 * size)
    assert slope == pytest.approx(gradient[place].norm().item(), rel=0.02)


def test_invalid_runs_are_rejected(trained: World) -> None:
    with pytest.raises(UserError, match="'other' is a transcoder"):
        protection(trained, config(), runs=("other",))
    with pytest.raises(UserError, match="both replace layer 1"):
        check_compatible_runs([Run.load("one", trained.data)] * 2)
    with pytest.raises(UserError, match="2 runs would be named 'x'"):
        names_of([Run.load(name, trained.data) for name in ("one", "two")], "x")
    with pytest.raises(UserError, match="at least 8 are needed"):
        PrivacyData.split(encode(trained.language_model, ["the old dog"], 1), other_text(trained, 64))


def test_training_cycles_through_the_retain_set(trained: World) -> None:
    model = ReplacementModel.from_runs(trained.language_model, [Run.load("one", trained.data)])
    data = PrivacyData.split(encode(trained.language_model, ["the old dog"], 1), other_text(trained, 320))
    optimizer = PrivacyOptimizer(model, data, config(batch_tokens=48))
    read = []
    for step in range(5):
        optimizer.steps = step
        read.append(optimizer._batch().ids_ST)
    seen = {tuple(row) for rows in read for row in rows.tolist()}
    assert seen == {tuple(row) for row in data.train_SL.tolist()}
