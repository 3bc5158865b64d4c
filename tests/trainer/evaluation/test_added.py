"""Layers put in place one by one: the first stage is one run alone, the last is all of them together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import run_of, small_world
from trainer.config import EvaluateConfig
from trainer.errors import UserError
from trainer.evaluation.added import evaluate_added, subject_of
from trainer.evaluation.evaluate import Session, evaluate, evaluate_together
from trainer.evaluation.result import Added, Evaluation, Together
from trainer.progress import never, silent


def test_the_stages_are_what_is_measured_alone_and_together(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    runs = [run_of(world, name, layer) for name, layer in (("last", 2), ("first", 0), ("middle", 1))]
    config = EvaluateConfig(text=world.text, tokens=320, resamples=100, prompts=0)
    session = Session.open(config, world.language_model, silent, never)
    measured = evaluate_added(session, runs, [0.4, 0.1, 0.2])
    found = measured.result
    assert isinstance(found, Added)
    assert found.runs == ("first", "middle", "last")
    assert found.run == subject_of(runs) == "one by one: first + middle + last"
    assert [step.sum_of_single for step in found.steps] == pytest.approx([0.1, 0.3, 0.7])
    assert not found.fine_tuned

    alone = evaluate(session, runs[1], seen_text=True).result
    assert isinstance(alone, Evaluation)
    assert found.steps[0].delta_ce.value == pytest.approx(alone.delta_ce.value, rel=1e-4)
    assert found.steps[0].kl == pytest.approx(alone.kl, rel=1e-4)
    together = evaluate_together(session, runs, [0.4, 0.1, 0.2])
    assert isinstance(together.result, Together)
    assert found.steps[-1].delta_ce.value == pytest.approx(together.result.delta_ce.value, rel=1e-4)
    assert found.steps[-1].agreement == pytest.approx(together.result.agreement)
    assert measured.added_S == pytest.approx(together.added_S, abs=1e-5)
    with pytest.raises(UserError, match="same layer"):
        evaluate_added(session, [runs[0], runs[0]], [0.1, 0.1])
    world.store.dispose()
