"""Dose curves: every strength as if steered alone, in one batch, and a suggestion that follows its rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import pytest

from tests.layers import random_layer
from tests.runs import World
from trainer.config import DoseConfig, Edit, Sampling, TrainConfig
from trainer.dose import at_strength, dose, promoted_tokens, suggested
from trainer.dose_curve import DoseCurve, DosePoint, DoseProgress
from trainer.errors import UserError
from trainer.generation import RowBatch, Step
from trainer.run import Run
from trainer.steering import NewToken, steer

PROMPT = "the old fox"
SAMPLING = Sampling(max_tokens=6, samples=2, temperature=1.0)
EDITS = (Edit(expert=3, mode="scale", strength=2.0), Edit(expert=5, mode="add", strength=9.0))
CONFIG = DoseConfig(prompt=PROMPT, edits=EDITS, edit=1, strengths=(2.0, 0.0, 1.0), sampling=SAMPLING)


@pytest.fixture
def run(world: World) -> Run:
    run = Run(world.data, TrainConfig.model_validate(world.config().model_dump()))
    run.__dict__["layer"] = random_layer(widths=(16, 20, 16), seed=0)
    return run


def curve_of(steps: Sequence[object]) -> DoseCurve:
    curve = steps[-1]
    assert isinstance(curve, DoseCurve)
    return curve


def test_each_strength_is_as_steered_alone(world: World, run: Run) -> None:
    steps = list(dose(world.language_model, run, CONFIG))
    curve = curve_of(steps)
    assert [point.strength for point in curve.points] == [0.0, 1.0, 2.0]
    for point in curve.points:
        alone = [
            step
            for step in steer(world.language_model, run, at_strength(CONFIG, point.strength))
            if isinstance(step, NewToken)
        ]
        steered = [token for token in alone if token.arm == "steered"]
        own = [token for token in alone if token.arm == "default"]
        assert point.text == "".join(token.text for token in steered if token.sample == 0)
        assert curve.default_text == "".join(token.text for token in own if token.sample == 0)
        assert point.kl == pytest.approx(fmean(token.kl for token in steered), abs=1e-4)
        assert curve.default_loss == pytest.approx(fmean(-math.log(token.probability) for token in own), abs=1e-4)
        losses = [token.delta_log_probability - math.log(token.probability) for token in steered]
        assert point.loss == pytest.approx(fmean(losses), abs=1e-4)


def test_progress_never_goes_back_and_reaches_what_is_written(world: World, run: Run) -> None:
    steps = list(dose(world.language_model, run, CONFIG))
    told = [step.tokens for step in steps if isinstance(step, DoseProgress)]
    assert told == sorted(told)
    assert 0 < told[0] < told[-1] <= 4 * 2 * 6


def test_all_strengths_share_one_batch(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    step = RowBatch.step

    def counted(batch: RowBatch) -> Step:
        sizes.append(len(batch.rows))
        return step(batch)

    monkeypatch.setattr(RowBatch, "step", counted)
    list(dose(world.language_model, run, CONFIG))
    assert 2 * 2 * 3 <= sizes[0] <= 2 * 2 * (3 + 1)  # the text without edits has rows of its own once it differs
    assert len(sizes) < 6


def test_the_promoted_tokens_are_those_that_a_large_unit_promotes(world: World, run: Run) -> None:
    promoted = promoted_tokens(world.language_model, run, PROMPT, EDITS[1], unit=3.0)
    again = promoted_tokens(world.language_model, run, PROMPT, EDITS[1], unit=3.0)
    assert promoted == again
    assert len(promoted) == 20


def point(strength: float, kl: float, loss: float) -> DosePoint:
    return DosePoint(strength, kl, 0.0, loss, "")


def test_the_suggestion_is_the_last_before_a_text_falls_apart() -> None:
    points = (point(0, 0, 3.0), point(1, 0.2, 3.1), point(2, 0.6, 3.4), point(3, 0.9, 3.65), point(4, 1.0, 3.2))
    assert suggested(points, 3.0, "add") == 2
    assert suggested(points, 3.2, "add") == 4
    assert suggested(points, 2.0, "scale") == 2


def test_no_suggestion_where_nothing_shows_or_all_is_too_dear() -> None:
    assert suggested((point(0, 0, 3.0), point(1, 0.01, 3.0)), 3.0, "add") is None
    assert suggested((point(0, 0, 3.0), point(1, 2.0, 5.0)), 3.0, "add") is None


def test_refusals(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="no edit 2"):
        dose(world.language_model, run, CONFIG.model_copy(update={"edit": 2}))
    off = CONFIG.model_copy(update={"edits": (Edit(expert=1, mode="off"),), "edit": 0})
    with pytest.raises(UserError, match="no strength to vary"):
        dose(world.language_model, run, off)
