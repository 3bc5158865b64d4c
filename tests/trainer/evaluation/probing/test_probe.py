"""Probing and the benchmark around sae-probes, which ``make interop`` compares with the package itself."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mxd.trainer.config.analysis import BenchmarkConfig, ProbeConfig
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.evaluation import benchmark
from mxd.trainer.evaluation.benchmark import (
    BinaryDataset,
    ProbeResult,
    SaeProbes,
    last_tokens,
    run_benchmark,
    subjects,
    write_saebench,
)
from mxd.trainer.evaluation.benchmark_results import Benchmark
from mxd.trainer.evaluation.probing import (
    ProbeExamples,
    collect_examples,
    probe,
    probe_examples,
    random_gate_weights,
    sample_labelled,
    split_texts,
    top_candidates,
)
from mxd.trainer.storage.database.tables import ProbeRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
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


SHORT_B = '{"label": "a", "text": "long enough"}\n{"label": "b", "text": "four"}\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.jsonl", None, "No such file"),
        ("one.jsonl", SHORT_B * 20, r"one.jsonl has 1 with at least 10 texts of 5 or more tokens"),
        ("none.csv", "text,kind\na,b\n", "No column 'label'"),
        ("ids.jsonl", '{"label": "a", "text": [5, 6]}\n' * 20, "Column 'text' of .* holds token ids, but texts are"),
        ("a.txt", "x", "Unsupported file"),
    ],
)
def test_unusable_labels_are_errors(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        sample_labelled(make_config(str(tmp_path / name)), lambda text: list(range(len(text))))


CONFIG = BenchmarkConfig(tokens=8, units=(1, 3), seeds=(1, 2), resamples=100)
TEXTS = tuple(f"the {word} ran and {'sang very old' if n % 2 else 'sat'} {n}" for n in range(30) for word in ("a", "b"))


class Package:
    """Replaces the package where only the bookkeeping around it is tested: the area is 0.5 plus the sum of units."""

    names = ("first", "second")

    def dataset_names(self, wanted: Sequence[str] | None) -> list[str]:
        """Return the wanted names."""
        return list(wanted or self.names)

    def dataset(self, name: str, texts: int | None) -> BinaryDataset:
        """Return the same texts for every name."""
        del texts
        return BinaryDataset(name, TEXTS, np.arange(len(TEXTS)) % 2)

    def probe(self, dataset: BinaryDataset, feature_RF: Tensor, units: Sequence[int], seed: int) -> dict[int, Any]:
        """Scores that depend on features, data set and seed."""
        auc = float(feature_RF.abs().sum()) + len(dataset.name) + seed
        return {count: ProbeResult(tuple(range(count)), auc + count, 0.5, 0.25) for count in units}


@pytest.fixture
def runs(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Two runs of the same layer, beside a package whose scores are known."""
    monkeypatch.setattr(benchmark, "SaeProbes", Package)
    return [world.train(name, seed=seed, tokens=128) for seed, name in enumerate(("small", "other"))]


def run(
    world: World, runs: Sequence[Run], folder: Path, callbacks: Callbacks = NO_CALLBACKS, **changes: Any
) -> Benchmark:
    return run_benchmark(runs, CONFIG.model_copy(update=changes), world.language_model, folder, callbacks)


def test_last_tokens_are_those_of_each_text_alone(world: World) -> None:
    texts = ["the old fox sang", "a dog", "the very very old fox ran and sat and sang and ran"]
    found = last_tokens(texts, [0, 1], world.language_model, 6, None, NO_CALLBACKS)
    for row, text in enumerate(texts):
        ids = [0, *world.language_model.tokenizer(text)["input_ids"][-6:]]
        for layer in (0, 1):
            expected = world.language_model.capture(layer, torch.tensor([ids]))
            torch.testing.assert_close(found[layer].mlp.input_TI[row], expected.input_TI[-1])
            torch.testing.assert_close(found[layer].mlp.output_TO[row], expected.output_TO[-1])
            down = world.language_model.down_projection(layer)
            torch.testing.assert_close(down(found[layer].neuron_TH[row]), expected.output_TO[-1])


def test_experts_and_random_gate_have_k_active_units(world: World, runs: list[Run]) -> None:
    found = last_tokens(TEXTS, [1], world.language_model, 8, None, NO_CALLBACKS)[1]
    layer = runs[0].layer
    expected = layer.route(found.mlp.input_TI)
    torch.testing.assert_close(found.experts(layer).gather(1, expected.indices_TK), expected.activations_TK.detach())
    for feature_RF in (found.experts(layer), found.random_gate(layer, random_gate_weights(layer, 0))):
        assert feature_RF.shape == (len(TEXTS), 40)
        assert ((feature_RF != 0).sum(1) <= 4).all()
    one, other = (found.random_gate(layer, random_gate_weights(layer, seed)) for seed in range(2))
    assert not torch.equal(one, other)


def test_every_subject_is_compared_with_the_first_run(world: World, runs: list[Run], tmp_path: Path) -> None:
    result = run(world, runs, tmp_path / "out")
    names = ["small", "other", "neurons of layer 1", "random gate of layer 1"]
    assert subjects(runs) == names
    assert result.datasets == ("first", "second")
    means = {(score.subject, score.units): score.mean.value for score in result.scores if score.metric == "auc"}
    assert set(means) == {(name, units) for name in names for units in (1, 3)}
    for each in result.differences:
        if each.metric == "auc":
            expected = means["small", each.units] - means[each.subject, each.units]
            assert each.mean.value == pytest.approx(expected)
            assert each.better == (2 if expected > 0 else 0)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["settings"]["tokens"] == 8


def test_a_stopped_benchmark_continues_and_runs_can_be_added(
    world: World, runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    callbacks = Callbacks(lambda count, total, note: done.append(count), lambda: 1 in done)
    with pytest.raises(CancelledError, match="run the same command to continue"):
        run(world, runs[:1], tmp_path / "out", callbacks)
    folder = tmp_path / "out" / "datasets"
    assert [path.name for path in folder.iterdir()] == ["first.json"]
    before = (folder / "first.json").read_text()
    run(world, runs[:1], tmp_path / "out")
    assert (folder / "first.json").read_text() == before
    result = run(world, runs, tmp_path / "out")
    assert result == run(world, runs, tmp_path / "fresh")
    monkeypatch.setattr(benchmark, "last_tokens", None)  # nothing is computed again
    assert run(world, runs, tmp_path / "out", datasets=("second",)).datasets == ("second",)


def test_results_of_other_settings_or_weights_are_not_mixed(world: World, runs: list[Run], tmp_path: Path) -> None:
    run(world, runs[:1], tmp_path / "out", datasets=("first",))
    with pytest.raises(UserError, match=r"other settings: tokens, seeds\. Give another folder\."):
        run(world, runs[:1], tmp_path / "out", tokens=4, seeds=(1,))
    weights = runs[0].folder / "layer.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="weights of small"):
        run(world, runs[:1], tmp_path / "out")


def test_the_output_for_saebench_has_the_means(world: World, runs: list[Run], tmp_path: Path) -> None:
    result = run(world, runs, tmp_path / "out")
    files = write_saebench(runs, CONFIG, result, tmp_path / "out", "mxd")
    assert len(files) == 4 * 2
    document = json.loads(files[0].read_text())
    details = document["eval_result_details"]
    assert [detail["dataset_name"] for detail in details] == ["first", "second"]
    mean = np.mean([detail["sae_top_1_test_auc"] for detail in details])
    assert document["eval_result_metrics"]["sae"]["sae_top_1_test_auc"] == pytest.approx(mean)
    assert set(document["sae_metrics_by_k"]) == {"1", "3"}  # SAEBench has no field of its own for 3
    assert "sae_top_3_test_auc" not in document["eval_result_metrics"]["sae"]


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^The package sae-probes is not installed\. Run 'pip install --no-deps"):
        SaeProbes()
    monkeypatch.setattr(benchmark, "version", lambda name: "0.3.0")
    with pytest.raises(UserError, match=r"sae-probes 0.3.0 is installed, but version 0.4.2 is required"):
        SaeProbes()
