"""Steering towards concepts: detection, choices on other texts than the reported ones, and repeated results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mxd.trainer.config.methods import Method
from mxd.trainer.errors import UserError
from mxd.trainer.experimental.concepts.benchmark import steer_concepts
from mxd.trainer.experimental.concepts.config import ConceptSteeringConfig
from mxd.trainer.experimental.concepts.detection import WordClassifier, expert_of_equal_density
from mxd.trainer.experimental.concepts.results import Dose
from mxd.trainer.experimental.concepts.summary import method_summaries
from mxd.trainer.experimental.concepts.texts import read_concepts
from mxd.trainer.layers.transcoders import Transcoder
from mxd.trainer.storage.run import Run
from tests.helpers.layers import random_layer
from tests.helpers.runs import World, small_world

CONCEPTS = {"fox": "the red fox sang in the wood", "code": "x = fn(a[0]) + 1", "none": "nothing to say here today"}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Texts of two concepts and of none."""
    rows = [
        {"label": label, "text": f"{text} {'so ' * (i % 4)}{i}"} for label, text in CONCEPTS.items() for i in range(24)
    ]
    path = tmp_path / "labelled.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def config(texts: Path, **more: object) -> ConceptSteeringConfig:
    values = {
        "texts": str(texts),
        "negative": "none",
        "limit": 24,
        "tokens": 24,
        "strengths": (1.0, 20.0),
        "max_tokens": 6,
    }
    return ConceptSteeringConfig.model_validate({**values, "prompts": ("the", "a fox"), "resamples": 100, **more})


def run_of(world: World, name: str, method: Method = "mxd") -> Run:
    run = Run(world.data, world.config(name))
    layer = random_layer(widths=(16, 24, 16), num_experts=40, k=8)
    if method == "transcoder":
        layer = Transcoder(layer.config.model_copy(update={"method": method}))
        torch.nn.init.normal_(layer.direction_NO)
    run.__dict__.update(layer=layer, units=dict.fromkeys(range(40), 1.0))
    return run


def test_texts_are_split_and_negatives_have_no_concept(texts: Path) -> None:
    read, concepts = read_concepts(config(texts))
    assert [each.concept for each in concepts] == ["fox", "code"]
    for each in concepts:
        halves = [set(part) for which in (0, 1) for part in each.half(which)]
        assert len(set.union(*halves)) == sum(map(len, halves)) == 48
        assert all(CONCEPTS[each.concept] in read[index] for index in each.positive)
        assert all(CONCEPTS["none"] in read[index] for index in each.negative)
    _, without = read_concepts(config(texts, negative=None))
    assert [each.concept for each in without] == ["fox", "code", "none"]
    with pytest.raises(UserError, match="no concept with at least 20 texts"):
        read_concepts(config(texts, label_column="text"))


def test_controls_have_similar_density() -> None:
    density_N = np.arange(100, dtype=np.float32)
    drawn = {expert_of_equal_density(density_N, 50, np.random.default_rng(seed)) for seed in range(50)}
    assert 50 not in drawn and len(drawn) > 5
    assert all(abs(expert - 50) <= 10 for expert in drawn)


def test_the_classifier_tells_words_apart() -> None:
    scores = WordClassifier.train(["a red fox", "foxes and a fox"], ["two blue cars", "a car"]).scores(["fox", "cars"])
    assert scores[0] > 0.5 > scores[1]


def test_the_strength_is_chosen_on_other_prompts_and_within_the_allowed_loss() -> None:
    doses = [
        Dose("c", method, strength, gain, loss)
        for method in ("expert", "random_expert")
        for strength, gain, loss in (
            (1.0, (0.2, 0.1), (0.5, 0.5)),
            (2.0, (0.4, 0.3), (1.0, 2.0)),
            (4.0, (0.9, 0.9), (5.0, 0.0)),
        )
    ]
    config = ConceptSteeringConfig(texts="unread", resamples=100)
    expert, control = method_summaries(doses, config)
    assert (expert.gain.value, expert.loss_increase.value) == (0.3, 2.0)
    assert expert.over_random_expert.value == 0
    assert control.gain.value == 0.3


def test_results_are_the_same_again_and_cover_every_method(tmp_path: Path, texts: Path) -> None:
    world = small_world(tmp_path)
    run, transcoder = run_of(world, "run"), run_of(world, "transcoder", "transcoder")
    result = steer_concepts(run, transcoder, config(texts), world.language_model)
    assert result == steer_concepts(run, transcoder, config(texts), world.language_model)
    methods = {"expert", "random_expert", "difference_of_means", "random_direction", "transcoder"}
    assert {each.method for each in result.methods} == methods == {each.method for each in result.curves}
    assert len(result.doses) == 2 * len(methods) * 2
    for each in result.detection:
        assert each.auroc["difference_of_means"].value > 0.8
        assert each.classifier_auroc.value > 0.8
        assert each.auroc["expert"].value >= 0.5
    assert any(abs(increase) > 0 for dose in result.doses for increase in dose.loss_increase)
    world.database.dispose()


def test_a_run_without_units_and_one_of_another_layer_are_refused(tmp_path: Path, texts: Path) -> None:
    world = small_world(tmp_path)
    run = run_of(world, "run")
    other = Run(world.data, world.config("other", layer=2))
    with pytest.raises(UserError, match="'other' replaces another layer than 'run'"):
        steer_concepts(run, other, config(texts), world.language_model)
    run.__dict__["units"] = {}
    with pytest.raises(UserError, match=r"has no unit\. Run: mxd index run"):
        steer_concepts(run, None, config(texts), world.language_model)
    world.database.dispose()
