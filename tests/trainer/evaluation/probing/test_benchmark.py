"""The benchmark around sae-probes. ``make interop`` compares it with the package itself."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mxd.trainer.config.analysis import BenchmarkConfig
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
from mxd.trainer.evaluation.probing import random_gate_weights
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.runs import World

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
    assert not torch.equal(
        found.random_gate(layer, random_gate_weights(layer, 0)), found.random_gate(layer, random_gate_weights(layer, 1))
    )


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
