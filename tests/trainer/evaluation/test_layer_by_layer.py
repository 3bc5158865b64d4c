"""Layer-by-layer evaluation: the first step equals a single evaluation, and the last one a joint evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxd.trainer.config import EvaluateConfig
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.evaluate import (
    Evaluator,
    evaluate,
    evaluate_jointly,
    evaluate_layer_by_layer,
    layer_by_layer_subject,
)
from mxd.trainer.evaluation.results import Evaluation, JointEvaluation, LayerByLayer
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.runs import run_of, small_world


def test_steps_equal_single_and_joint_evaluations(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    runs = [run_of(world, name, layer) for name, layer in (("last", 2), ("first", 0), ("middle", 1))]
    config = EvaluateConfig(text=world.text, tokens=320, resamples=100, prompts=0)
    evaluator = Evaluator.open(config, world.language_model, NO_CALLBACKS)
    measured = evaluate_layer_by_layer(evaluator, runs, [0.4, 0.1, 0.2])
    result = measured.result
    assert isinstance(result, LayerByLayer)
    assert result.runs == ("first", "middle", "last")
    assert result.run == layer_by_layer_subject(runs) == "layer by layer: first + middle + last"
    assert [step.summed_loss_increase for step in result.steps] == pytest.approx([0.1, 0.3, 0.7])
    assert not result.fine_tuned

    alone = evaluate(evaluator, runs[1], seen_text=True).result
    assert isinstance(alone, Evaluation)
    assert result.steps[0].loss_increase.value == pytest.approx(alone.loss_increase.value, rel=1e-4)
    assert result.steps[0].kl == pytest.approx(alone.kl, rel=1e-4)
    joint = evaluate_jointly(evaluator, runs, [0.4, 0.1, 0.2])
    assert isinstance(joint.result, JointEvaluation)
    assert result.steps[-1].loss_increase.value == pytest.approx(joint.result.loss_increase.value, rel=1e-4)
    assert result.steps[-1].agreement == pytest.approx(joint.result.agreement)
    assert measured.loss_increase_S == pytest.approx(joint.loss_increase_S, abs=1e-5)
    with pytest.raises(UserError, match="listed twice"):
        evaluate_layer_by_layer(evaluator, [runs[0], runs[0]], [0.1, 0.1])
    world.database.dispose()
