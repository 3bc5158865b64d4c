"""Scores of labels by a tiny language model: a judge that knows the answer scores 1, failures are no scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sqlalchemy.orm import Session

from mxd.trainer.analysis.indexing import build_index
from mxd.trainer.config import IndexConfig
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.experimental.label_scores.judge import LocalJudge
from mxd.trainer.experimental.label_scores.results import ScoreMethod
from mxd.trainer.experimental.label_scores.scoring import (
    NamedLabel,
    score_labels,
)
from mxd.trainer.experimental.label_scores.texts import read_scoring_texts
from mxd.trainer.language_model.prompts import prompt_ids
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import World, small_world

LABELS = {expert: NamedLabel(f"label {expert}", "features") for expert in range(4)}
METHODS: tuple[ScoreMethod, ...] = ("detection", "fuzzing", "embedding")


class Oracle(LocalJudge):
    """A judge that says yes to marked or unmarked texts with a given word."""

    def __init__(self, words: dict[str, str]) -> None:
        super().__init__(tiny_language_model())
        self.words = words

    def log_odds(self, prompts):  # type: ignore[no-untyped-def]
        """Log-odds of 1 if the text contains the word of its label, else -1."""
        return np.array([1.0 if self._fits(prompt) else -1.0 for prompt in prompts])

    def _fits(self, prompt: str) -> bool:
        label, text, _ = prompt.removeprefix("Description: ").split("\n", 2)
        return self.words[label] in text


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A tiny language model with an indexed run."""
    world = small_world(tmp_path_factory.mktemp("scores"))
    train_layer(world.config(), world.data, world.database, world.language_model)
    run = Run.load("small", world.data)
    build_index(run, IndexConfig(text=world.text, tokens=3_000), world.language_model, world.database)
    return world


def test_log_odds_equal_those_of_single_prompts() -> None:
    language_model = tiny_language_model()
    judge = LocalJudge(language_model)
    prompts = ["red", "a very long prompt about a fox", "dog"] * 7
    odds = judge.log_odds(prompts)
    # The byte tokenizer begins both answers with a space.
    yes, no = (language_model.tokenizer(it, add_special_tokens=False)["input_ids"][0] for it in ("y", "n"))
    for prompt, value in zip(prompts[:3], odds[:3], strict=True):
        logits_V = language_model.logits(torch.tensor([prompt_ids(language_model, f"{prompt} ")]))[0, -1]
        assert value == pytest.approx(float(logits_V[yes] - logits_V[no]), abs=1e-4)
    np.testing.assert_allclose(odds[:3], odds[18:], atol=1e-5)
    embedded = judge.embeddings(["red", "fox"])
    np.testing.assert_allclose(judge.embeddings(["fox", "a long text", "red"])[[2, 0]], embedded, atol=1e-5)


def test_fuzzing_marks_an_inactive_token_of_the_same_text(world: World) -> None:
    with Session(world.database) as session:
        record = find_record(session, "small")
        run = Run.load("small", world.data)
        for expert in range(20):
            texts = read_scoring_texts(session, record, expert, run.tokenizer, 5)
            active = {window.text: window.marked for window in texts.active}
            for window in texts.wrongly_marked:
                assert window.text in active
                assert window.marked_text.replace("«", "").replace("»", "") == window.text
            assert not set(texts.wrongly_marked) & set(texts.active)


def test_a_judge_that_knows_scores_above_chance_and_controls_do_not(world: World) -> None:
    run = Run.load("small", world.data)
    with Session(world.database) as session:
        record = find_record(session, "small")
        read = {expert: read_scoring_texts(session, record, expert, run.tokenizer, 4) for expert in range(40)}
    enough = {expert: texts for expert, texts in read.items() if len(texts.wrongly_marked) >= 3}
    labels = {expert: NamedLabel(f"label {expert}", "features") for expert in enough}
    first = {expert: texts.active[0] for expert, texts in enough.items()}
    words = {f"label {expert}": f"«{window.tokens[window.marked]}" for expert, window in first.items()}
    result = score_labels(run, world.database, labels, Oracle(words), ("fuzzing",), 4, 0)
    summary = result.methods["fuzzing"]
    assert summary.own is not None and summary.other is not None
    assert summary.labels == len(labels) > 1 and summary.failed == 0
    assert summary.own.value > 0.5
    for each in result.labels:
        assert each.other_label != each.label
        score = each.scores["fuzzing"]
        assert score.value is not None and score.low is not None and score.high is not None
        assert score.low <= score.value <= score.high


def test_a_score_that_cannot_be_measured_is_no_score(world: World) -> None:
    run = Run.load("small", world.data)
    words = {f"label {expert}": "«" for expert in LABELS}
    oracle = Oracle(words)
    oracle.log_odds = lambda prompts: np.full(len(prompts), np.nan)  # type: ignore[method-assign]
    result = score_labels(run, world.database, LABELS, oracle, ("detection",), 4, 0)
    assert result.methods["detection"].own is None
    assert result.methods["detection"].failed == 4
    assert all(each.scores["detection"].value is None for each in result.labels)
    assert "not finite" in str(result.labels[0].scores["detection"].reason)
    (stored,) = result.stored()[0].scores
    assert (stored.score, stored.control, stored.reason) == (None, None, result.labels[0].scores["detection"].reason)
    few = score_labels(run, world.database, LABELS, Oracle(words), ("detection",), 2, 0)
    assert "fewer than 3" in str(few.labels[0].scores["detection"].reason)


def test_a_local_model_scores_all_methods(world: World) -> None:
    run, judge = Run.load("small", world.data), LocalJudge(world.language_model)
    result = score_labels(run, world.database, LABELS, judge, METHODS, 4, 0)
    assert set(result.methods) == set(METHODS)
    for method in METHODS:
        assert all(0 <= (each.scores[method].value or 0) <= 1 for each in result.labels)
    for each in result.labels:
        stored = result.stored()[each.expert]
        assert stored.label == each.label
        assert {score.method: score.score for score in stored.scores} == {it: each.scores[it].value for it in METHODS}
    assert result == score_labels(run, world.database, LABELS, judge, METHODS, 4, 0)


def test_the_control_needs_another_label_and_cancelling_ends(world: World) -> None:
    run, judge = Run.load("small", world.data), LocalJudge(world.language_model)
    same = dict.fromkeys(range(3), NamedLabel("one", "features"))
    with pytest.raises(UserError, match="two different labels"):
        score_labels(run, world.database, same, judge, METHODS, 4, 0)
    with pytest.raises(CancelledError):
        score_labels(run, world.database, LABELS, judge, METHODS, 4, 0, Callbacks(is_cancelled=lambda: True))
