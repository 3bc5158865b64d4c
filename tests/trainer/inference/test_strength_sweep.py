"""Strength sweeps: each strength equals steering alone, and the suggestion follows its rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import pytest

from mxd.trainer.config import DoseConfig, Edit, Sampling, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.inference.generation import RowBatch, StepOutput
from mxd.trainer.inference.results import DoseDoneEvent, DosePoint, DoseProgressEvent, TokenEvent
from mxd.trainer.inference.steering import steer
from mxd.trainer.inference.strength_sweep import at_strength, dose, promoted_tokens, suggest_strength
from mxd.trainer.storage.run import Run
from tests.helpers.layers import random_layer
from tests.helpers.runs import World

PROMPT = "the old fox"
SAMPLING = Sampling(max_tokens=6, samples=2, temperature=1.0)
EDITS = (Edit(expert=3, mode="scale", strength=2.0), Edit(expert=5, mode="add", strength=9.0))
CONFIG = DoseConfig(prompt=PROMPT, edits=EDITS, edit=1, strengths=(2.0, 0.0, 1.0), sampling=SAMPLING)


@pytest.fixture
def run(world: World) -> Run:
    run = Run(world.data, TrainConfig.model_validate(world.config().model_dump()))
    run.__dict__["layer"] = random_layer(widths=(16, 20, 16), seed=0)
    return run


def curve_of(steps: Sequence[object]) -> DoseDoneEvent:
    curve = steps[-1]
    assert isinstance(curve, DoseDoneEvent)
    return curve


def test_each_strength_equals_steering_alone(world: World, run: Run) -> None:
    steps = list(dose(world.language_model, run, CONFIG))
    curve = curve_of(steps)
    assert [point.strength for point in curve.points] == [0.0, 1.0, 2.0]
    for point in curve.points:
        alone = [
            step
            for step in steer(world.language_model, run, at_strength(CONFIG, point.strength))
            if isinstance(step, TokenEvent)
        ]
        steered = [token for token in alone if token.variant == "steered"]
        own = [token for token in alone if token.variant == "baseline"]
        assert point.text == "".join(token.text for token in steered if token.sample == 0)
        assert curve.baseline_text == "".join(token.text for token in own if token.sample == 0)
        assert point.kl == pytest.approx(fmean(token.kl for token in steered), abs=1e-4)
        assert curve.baseline_loss == pytest.approx(fmean(-math.log(token.probability) for token in own), abs=1e-4)
        losses = [token.delta_log_probability - math.log(token.probability) for token in steered]
        assert point.loss == pytest.approx(fmean(losses), abs=1e-4)


def test_progress_is_monotonic_and_ends_at_the_written_tokens(world: World, run: Run) -> None:
    steps = list(dose(world.language_model, run, CONFIG))
    events = [step.tokens for step in steps if isinstance(step, DoseProgressEvent)]
    assert events == sorted(events)
    assert 0 < events[0] < events[-1] <= 4 * 2 * 6


def test_all_strengths_share_one_batch(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    step = RowBatch.step

    def counted(batch: RowBatch) -> StepOutput:
        sizes.append(len(batch.rows))
        return step(batch)

    monkeypatch.setattr(RowBatch, "step", counted)
    list(dose(world.language_model, run, CONFIG))
    assert 2 * 2 * 3 <= sizes[0] <= 2 * 2 * (3 + 1)  # the text without edits has rows of its own once it differs
    assert len(sizes) < 6


def test_promoted_tokens_equal_those_of_a_large_unit(world: World, run: Run) -> None:
    promoted = promoted_tokens(world.language_model, run, PROMPT, EDITS[1], unit=3.0)
    again = promoted_tokens(world.language_model, run, PROMPT, EDITS[1], unit=3.0)
    assert promoted == again
    assert len(promoted) == 20


def point(strength: float, kl: float, loss: float) -> DosePoint:
    return DosePoint(strength, kl, 0.0, loss, "")


def test_suggests_the_last_fluent_strength() -> None:
    points = (point(0, 0, 3.0), point(1, 0.2, 3.1), point(2, 0.6, 3.4), point(3, 0.9, 3.65), point(4, 1.0, 3.2))
    assert suggest_strength(points, 3.0, "add") == 2
    assert suggest_strength(points, 3.2, "add") == 4
    assert suggest_strength(points, 2.0, "scale") == 2


def test_no_suggestion_without_effect_or_fluency() -> None:
    assert suggest_strength((point(0, 0, 3.0), point(1, 0.01, 3.0)), 3.0, "add") is None
    assert suggest_strength((point(0, 0, 3.0), point(1, 2.0, 5.0)), 3.0, "add") is None


def test_invalid_requests(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="no edit 2"):
        dose(world.language_model, run, CONFIG.model_copy(update={"edit": 2}))
    ablated = CONFIG.model_copy(update={"edits": (Edit(expert=1, mode="ablate"),), "edit": 0})
    with pytest.raises(UserError, match="no strength to vary"):
        dose(world.language_model, run, ablated)
