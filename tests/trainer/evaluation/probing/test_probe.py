"""Probing: a planted expert is found, noise is not, and the examples of a text stay in one split."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mxd.trainer.config.analysis import ProbeConfig
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.probing import (
    ProbeExamples,
    collect_examples,
    probe,
    probe_examples,
    sample_labelled,
    split_texts,
    top_candidates,
)
from mxd.trainer.storage.database.tables import ProbeRecord
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.runs import World


def planted(examples: int = 400) -> ProbeExamples:
    """Random examples. Feature 7 separates class a; all other features are noise."""
    generator = np.random.default_rng(0)
    labels = generator.choice(["a", "b", "c"], size=examples)
    features = generator.random((examples, 30)).astype(np.float32)
    features[:, 7] += 3 * (labels == "a")
    return ProbeExamples(labels, np.arange(examples), {"experts": features, "neurons": features[:, 10:]})


def make_config(labels: str = "labels.jsonl", **changes: object) -> ProbeConfig:
    return ProbeConfig(labels=labels, candidates=10, **changes)


def test_a_planted_expert_is_found_and_noise_is_not() -> None:
    results = probe_examples(planted(), make_config())
    separating, noise = results["experts"].classes["a"], results["neurons"].classes["a"]
    assert (separating.expert, separating.f1, separating.roc_auc) == (7, 1, 1)
    assert 7 in separating.top5.experts
    assert noise.f1 < 0.6
    assert noise.top1.f1_low <= noise.f1 <= noise.top1.f1_high
    counts = sum(separating.class_counts) + sum(separating.other_counts)
    assert counts == pytest.approx(400 * 0.2, rel=0.3)


def test_candidates_depend_on_training_examples_only() -> None:
    examples = planted()
    split = split_texts(examples.text_E, examples.labels_E, 0)
    original = examples.features["experts"]
    changed = original.copy()
    is_class = examples.labels_E == "a"
    changed[~split.train_E, 3] += 100 * is_class[~split.train_E]
    candidates = [top_candidates(features, is_class, split.train_E, 10) for features in (original, changed)]
    assert candidates[0] == candidates[1]


def test_examples_of_a_text_stay_together() -> None:
    texts = np.repeat(np.arange(100), 4)
    for seed in range(20):
        split = split_texts(texts, np.where(texts < 10, "rare", "frequent"), seed)
        parts = [set(texts[mask]) for mask in (split.train_E, split.validation_E, split.test_E)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 100
        assert all(min(part) < 10 for part in parts), "a class without test examples would have an F1 of 0"


@pytest.fixture
def labels(tmp_path: Path) -> str:
    """Two classes that any gate separates, and one that is too small."""
    words = {"digits": "1 2 3 4 5 6", "letters": "xyz xyz xyz"}
    rows = [{"label": label, "text": f"{text} {n}"} for label, text in words.items() for n in range(40)]
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [*rows, {"label": "rare", "text": "only one"}]))
    return str(path)


@pytest.mark.parametrize("level", ["text", "token"])
def test_a_run_is_probed_and_the_result_stored(world: World, labels: str, level: str) -> None:
    run = world.train()
    for _ in range(2):
        result = probe(run, make_config(labels, level=level), world.language_model, world.database, NO_CALLBACKS)
    assert set(result["classes"]) == {"digits", "letters"}
    assert set(result["kinds"]) == {"experts", "neurons", "random-gate"}
    assert result["kinds"]["neurons"]["classes"]["digits"]["f1"] > 0.8
    assert result["examples"] == 80 * (1 if level == "text" else 4)
    assert [record.result for record in world.rows(ProbeRecord)] == [json.loads(json.dumps(result))]


def test_features_are_means_over_the_tokens_of_the_text(world: World, labels: str) -> None:
    layer = world.train().layer
    config = make_config(labels)
    examples = collect_examples(config, world.language_model, 1, layer, NO_CALLBACKS)
    tokenizer = world.language_model.tokenizer
    _, first = sample_labelled(config, lambda text: tokenizer(text)["input_ids"])[0]
    ids = [0, *first]
    routing = layer.route(world.language_model.capture(1, torch.tensor([ids])).input_TI)
    dense = torch.zeros(len(ids), 40).scatter(1, routing.indices_TK, routing.activations_TK)[1:].mean(0)
    np.testing.assert_allclose(examples.features["experts"][0], dense.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert examples.features["neurons"].shape[1] == 24


def by_character(text: str) -> list[int]:
    """One token per character."""
    return list(range(len(text)))


def test_unusable_labels_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        sample_labelled(make_config(str(tmp_path / "gone.jsonl")), by_character)
    rows = ['{"label": "a", "text": "long enough"}\n', '{"label": "b", "text": "four"}\n']
    (tmp_path / "one.jsonl").write_text("".join(rows * 20))
    with pytest.raises(UserError, match=r"one.jsonl has 1 with at least 10 texts of 5 or more tokens"):
        sample_labelled(make_config(str(tmp_path / "one.jsonl")), by_character)
    with pytest.raises(UserError, match="No column 'label'"):
        (tmp_path / "none.csv").write_text("text,kind\na,b\n")
        sample_labelled(make_config(str(tmp_path / "none.csv")), by_character)
    (tmp_path / "ids.jsonl").write_text('{"label": "a", "text": [5, 6]}\n' * 20)
    with pytest.raises(UserError, match=r"Column 'text' of .* holds token ids, but texts are needed"):
        sample_labelled(make_config(str(tmp_path / "ids.jsonl")), by_character)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UserError, match="Unsupported file"):
        sample_labelled(make_config(str(tmp_path / "a.txt")), by_character)
