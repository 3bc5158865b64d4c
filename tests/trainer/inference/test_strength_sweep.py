"""Strength sweeps: each strength equals steering alone, and the suggestion follows its rule."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from mxd.trainer.config import Edit, Sampling, StrengthSweepConfig
from mxd.trainer.inference.generation import RowBatch, StepOutput, run_alone
from mxd.trainer.inference.results import (
    ConceptScore,
    StrengthSweepDoneEvent,
    StrengthSweepPoint,
    StrengthSweepProgressEvent,
    StrengthSweepStep,
    TokenEvent,
)
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.inference.strength_sweep import (
    Concept,
    StrengthSweep,
    at_strength,
    is_unclear,
    suggest_strength,
    sweep_verdict,
)
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.run import Run
from tests.helpers.runs import World, run_of

PROMPT = "the old fox"
SAMPLING = Sampling(max_tokens=6, samples=2, temperature=1.0)
EDITS = (Edit(expert=3, mode="scale", strength=2.0), Edit(expert=5, mode="add", strength=9.0))
CONFIG = StrengthSweepConfig(prompt=PROMPT, edits=EDITS, edit=1, strengths=(2.0, 0.0, 1.0), sampling=SAMPLING)


@pytest.fixture
def run(world: World) -> Run:
    return run_of(world, seed=0)


def sweep(world: World, run: Run, config: StrengthSweepConfig) -> list[StrengthSweepStep]:
    return list(run_alone(world.language_model, StrengthSweep.prepare(world.language_model, [run], config)))


def curve_of(steps: Sequence[object]) -> StrengthSweepDoneEvent:
    curve = steps[-1]
    assert isinstance(curve, StrengthSweepDoneEvent)
    return curve


def test_each_strength_equals_steering_alone(world: World, run: Run) -> None:
    steps = sweep(world, run, CONFIG)
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
        assert point.perplexity_ratio == pytest.approx(math.exp(fmean(losses) - curve.baseline_loss), rel=1e-3)


def test_texts_so_far_appear_strength_by_strength_and_grow_into_the_result(world: World, run: Run) -> None:
    steps = sweep(world, run, CONFIG)
    shown = [step.texts for step in steps if isinstance(step, StrengthSweepProgressEvent)]
    assert [len(texts) for texts in shown[:5]] == [1, 2, 3, 3, 3]
    assert [each.strength for each in shown[-1]] == [0.0, 1.0, 2.0]
    early, *_, last = (step for step in steps if isinstance(step, StrengthSweepProgressEvent))
    result = curve_of(steps)
    assert (early.suggested, last.suggested) == (None, result.suggested)
    assert [each.activation is not None for each in shown[-2]] == [True, True, False]
    assert [(each.activation, each.promoted) for each in shown[-1]] == [
        (each.activation, each.promoted) for each in result.points
    ]
    for point, *growing in zip(result.points, *shown[4:], strict=True):
        assert all(point.text.startswith(each.text) for each in growing)
        assert all(point.control_text.startswith(each.control_text) for each in growing)
        assert (point.kl, point.perplexity_ratio) == (growing[-1].kl, growing[-1].perplexity_ratio)


def test_all_strengths_share_one_batch(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    step = RowBatch.step

    def counted(batch: RowBatch) -> StepOutput:
        sizes.append(len(batch.rows))
        return step(batch)

    monkeypatch.setattr(RowBatch, "step", counted)
    sweep(world, run, CONFIG)
    assert 2 * 2 * 3 <= sizes[0] <= 2 * 2 * (3 + 1)  # the text without edits has rows of its own once it differs
    assert len(sizes) < 6


def test_the_control_is_the_same_edit_of_another_expert(world: World, run: Run) -> None:
    curve = curve_of(sweep(world, run, CONFIG.model_copy(update={"control": 7})))
    assert curve.control == 7
    of_control = StrengthSweepConfig.model_validate(
        {**CONFIG.model_dump(), "edits": [EDITS[0], EDITS[1].model_copy(update={"expert": 7})]}
    )
    others = curve_of(sweep(world, run, of_control)).points
    assert [point.control_text for point in curve.points] == [point.text for point in others]
    neutral = curve.points[0]
    for score in (neutral.activation, neutral.promoted):
        assert (score.steered, score.standard_error) == (score.control, 0)
    assert not neutral.exceeds_control
    assert curve_of(sweep(world, run, CONFIG)).control != EDITS[1].expert


@torch.inference_mode()
def test_activation_is_that_of_routing_the_text(world: World, run: Run) -> None:
    """The original model reads the steered texts; a long batch of them is padded on the right."""
    concept = Concept(world.language_model, run, 5, 2.0, prompt_ids(world.language_model, PROMPT))
    texts = [(7, 8, 9), (4,), (7, 8, 9), *((each, 3) for each in range(20))]
    means = concept.mean_activations(texts)
    assert set(means) == set(texts)
    for text in texts[:3]:
        inputs = world.language_model.mlp_inputs([run.config.layer], torch.tensor([[*concept.prompt, *text]]))
        routing = run.layer.route(inputs[run.config.layer][-len(text) :])
        own = (routing.activations_TK * (routing.indices_TK == 5)).sum(dim=1)
        assert means[text] == pytest.approx(own.mean().item() / 2, abs=1e-5)
    assert any(means.values())


def point(strength: float, ratio: float, exceeds: bool) -> StrengthSweepPoint:
    score, other = ConceptScore(0.0, 0.0, 0.0, exceeds), ConceptScore(0.0, 0.0, 0.0, False)
    return StrengthSweepPoint(strength, 0.0, ratio, ratio <= 3, "", "", other, score)


def test_suggests_the_smallest_fluent_strength_that_shows_the_concept() -> None:
    points = (point(0, 1, True), point(1, 1.2, False), point(2, 2.9, True), point(3, 2.0, True))
    assert suggest_strength(points, "add") == 2
    assert suggest_strength(points[:2], "add") is None
    assert suggest_strength((point(0, 1, False), point(4, 3.1, True)), "add") is None
    assert suggest_strength(points, "scale") == 2


def test_a_large_difference_with_a_large_error_is_unclear() -> None:
    def at(strength: float, steered: float, error: float) -> StrengthSweepPoint:
        none = ConceptScore(0.0, 0.0, 0.0, False)
        score = ConceptScore(steered, 0.0, error, steered >= max(0.01, 2 * error))
        return StrengthSweepPoint(strength, 0.0, 1.0, True, "", "", none, score)

    small, noisy, clear = at(1, 0.005, 0.01), at(2, 0.06, 0.04), at(3, 0.2, 0.04)
    assert is_unclear((small, noisy, clear), 3, "add")
    assert not is_unclear((small, clear), 3, "add")
    assert not is_unclear((clear, at(4, 0.06, 0.04)), 3, "add"), "only a smaller one would be suggested instead"
    assert is_unclear((small,), None, "add")


def test_texts_record_the_probability_of_watched_tokens(world: World, run: Run) -> None:
    config = at_strength(CONFIG, 2.0)
    steering = Steering.prepare(world.language_model, [run], config)
    tokens = [step for step in run_alone(world.language_model, steering) if isinstance(step, TokenEvent)]
    (token, *_) = [token for token in tokens if token.variant == "steered" and token.sample == 0]
    watching = replace(Steering.prepare(world.language_model, [run], config), watched=(token.id,))
    assert [s.id for s in run_alone(world.language_model, watching) if isinstance(s, TokenEvent)] == [
        token.id for token in tokens
    ]
    steered = next(text for text in watching.texts if text.variant == "steered")
    assert steered.watched[0] == pytest.approx(token.probability)
    vocabulary = tuple(range(world.language_model.module.config.vocab_size))
    every = replace(watching, watched=vocabulary)
    list(run_alone(world.language_model, every))
    assert [mass for text in every.texts for mass in text.watched] == pytest.approx([1.0] * len(tokens), abs=1e-4)


def test_the_verdict_names_the_rule_and_its_measure() -> None:
    def at(strength: float, ratio: float, steered: float) -> StrengthSweepPoint:
        shown, none = ConceptScore(steered, 0.02, 0.01, True), ConceptScore(0.01, 0.01, 0.01, False)
        return StrengthSweepPoint(strength, 0.0, ratio, ratio <= 3, "", "", none, shown)

    points = (at(2, 2, 0.07), at(4, 1.5, 0.15), at(8, 4, 0.3))
    said = sweep_verdict(points, 2, "add")
    assert "+2 is the smallest strength" in said and "the probability of promoted tokens" in said
    assert "It is 7.0 % (control 2.0 %, difference +5.0 ± 2.0), at perplexity × 2.0." in said
    assert "15.0 % at +4, at perplexity × 1.5." in said
    assert "At no other strength" in sweep_verdict(points[:1], 2, "add")
    assert "15.0 % at −4, at perplexity × 1.5." in sweep_verdict((at(-4, 1.5, 0.15), points[0]), 2, "add")
    assert "more probable at × 8, where perplexity is × 4.0" in sweep_verdict(points[2:], None, "scale")
    assert "at none of them" in sweep_verdict((point(1, 1, False),), None, "add")
    assert "at none of them" in sweep_verdict((at(0.5, 1, 0.3), point(2, 1, False)), None, "scale"), "weaker than × 1"
