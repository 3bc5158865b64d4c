"""The benchmark of sae-probes: sparse probes on experts, features, MLP neurons and a random gate.

All units of a data set come from one forward pass per text. Each finished data set is a file, so that the benchmark can
be interrupted and continued, and runs can be added later:

FOLDER/settings.json        settings, and a digest of each run's weights
FOLDER/datasets/NAME.json   test scores of every probe
FOLDER/summary.json         means over data sets, with intervals

Shapes: D data sets, F features, R texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mxd.trainer.config.analysis import BENCHMARK_SUMMARY, BenchmarkConfig
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.probing.last_tokens import LastTokens, last_tokens
from mxd.trainer.evaluation.probing.sae_probes import VERSION, BinaryDataset, SaeProbes
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.files import WEIGHTS_FILE
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.bootstrap import Bootstrap, Floats, Interval
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import atomic_write, exclusive_lock, read_json

Scores = Mapping[str, Any]
"""Scores of one probe: ``subject``, ``seed``, ``count``, ``units``, ``auc``, ``accuracy`` and ``f1``."""
METRICS = ("auc", "accuracy", "f1")
SETTINGS_FILE, DATASETS_FOLDER = "settings.json", "datasets"


@dataclass(frozen=True)
class Score:
    """Mean over data sets of one metric, and its 95 % interval over data sets."""

    subject: str
    """Run, or ``neurons of layer L`` or ``random gate of layer L``."""
    units: int
    """Number of units per probe."""
    metric: str
    mean: Interval


@dataclass(frozen=True)
class Difference:
    """Paired difference between the first run and another subject: its scores minus the other's."""

    subject: str
    """The other subject."""
    units: int
    metric: str
    mean: Interval
    better: int
    """Number of data sets on which the first run scores higher."""


@dataclass(frozen=True)
class Benchmark:
    """Results of all subjects on the same data sets."""

    settings: Mapping[str, Any]
    datasets: tuple[str, ...]
    training_texts: tuple[int, int]
    """Smallest and largest number of training texts of a data set."""
    test_texts: tuple[int, int]
    """Smallest and largest number of test texts of a data set."""
    scores: tuple[Score, ...]
    differences: tuple[Difference, ...]


def run_benchmark(
    runs: Sequence[Run], config: BenchmarkConfig, language_model: LanguageModel, folder: Path, callbacks: Callbacks
) -> Benchmark:
    """Probe all data sets that ``folder`` lacks, and summarise.

    Raises:
        UserError: sae-probes is not installed, a data set is unknown, or ``folder`` holds results of other settings.
        CancelledError: the task was cancelled. Finished data sets are kept.
    """
    package = SaeProbes()
    names = package.dataset_names(config.datasets)
    with exclusive_lock(folder / ".lock", f"{folder} is written"):
        settings = _checked_settings(runs, config, language_model, folder)
        (folder / DATASETS_FOLDER).mkdir(exist_ok=True)
        for number, name in enumerate(names):
            callbacks.on_progress(number, len(names), name)
            _probe_dataset(package, runs, name, config, language_model, folder, callbacks)
        callbacks.on_progress(len(names), len(names), "")
        results = {name: read_json(_file(folder, name)) for name in names}
        benchmark = _summarise(runs, config, settings, results)
        atomic_write(folder / BENCHMARK_SUMMARY, json.dumps(asdict(benchmark), indent=1) + "\n")
    return benchmark


def _file(folder: Path, name: str) -> Path:
    return folder / DATASETS_FOLDER / f"{name}.json"


def _checked_settings(
    runs: Sequence[Run], config: BenchmarkConfig, language_model: LanguageModel, folder: Path
) -> Mapping[str, Any]:
    """Write the settings of a new folder, or check that they are those of an existing one. Runs may be added."""
    settings: dict[str, Any] = {
        "sae_probes": VERSION,
        "language_model": language_model.source,
        "dtype": str(language_model.dtype).removeprefix("torch."),
        **config.model_dump(mode="json", include={"texts", "tokens", "units", "seeds"}),
    }
    weights = {run.name: blake2b((run.folder / WEIGHTS_FILE).read_bytes(), digest_size=16).hexdigest() for run in runs}
    path = folder / SETTINGS_FILE
    if path.is_file():
        stored = read_json(path)
        known = stored.pop("weights")
        changed = [name for name in settings if stored.get(name) != settings[name]]
        changed += [f"weights of {name}" for name in weights if known.get(name, weights[name]) != weights[name]]
        if changed:
            raise UserError(
                f"{folder} holds results with other settings: {', '.join(changed)}. Give another folder as --out."
            )
        weights = known | weights
    settings["weights"] = weights
    atomic_write(path, json.dumps(settings, indent=1) + "\n")
    return settings


def subjects(runs: Sequence[Run]) -> list[str]:
    """Return what is compared: the runs, and the baselines of each of their layers."""
    layers = sorted({run.config.layer for run in runs})
    return [*(run.name for run in runs), *(_baseline(kind, layer) for layer in layers for kind in BASELINES)]


BASELINES = ("neurons", "random gate")


def _baseline(kind: str, layer: int) -> str:
    return f"{kind} of layer {layer}"


def _probe_dataset(
    package: SaeProbes,
    runs: Sequence[Run],
    name: str,
    config: BenchmarkConfig,
    language_model: LanguageModel,
    folder: Path,
    callbacks: Callbacks,
) -> None:
    """Add the scores of the subjects that a data set's file lacks."""
    path = _file(folder, name)
    stored = read_json(path) if path.is_file() else {"scores": []}
    missing = set(subjects(runs)) - {score["subject"] for score in stored["scores"]}
    if not missing:
        return
    dataset = package.dataset(name, config.texts)
    layers = sorted({run.config.layer for run in runs})
    start_token = runs[0].config.text.start_token
    captured = last_tokens(dataset.texts, layers, language_model, config.tokens, start_token, callbacks)
    scores: list[Scores] = list(stored["scores"])
    for seed in config.seeds:
        for subject, feature_RF in _features(runs, captured, seed):
            callbacks.check_cancelled("Stopped. The finished data sets are kept; run the same command to continue.")
            if subject in missing:
                scores += _scores(package, dataset, subject, feature_RF, config, seed)
    train, test = dataset.split_sizes
    document = {"dataset": name, "training_texts": train, "test_texts": test, "scores": scores}
    atomic_write(path, json.dumps(document) + "\n")


def _features(runs: Sequence[Run], captured: Mapping[int, LastTokens], seed: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the activations [R, F] of each subject. The random gate has the size of the layer's first run."""
    for run in runs:
        yield run.name, captured[run.config.layer].experts(run.layer)
    for layer, tokens in captured.items():
        first = next(run for run in runs if run.config.layer == layer)
        yield _baseline("neurons", layer), tokens.neuron_RH
        yield _baseline("random gate", layer), tokens.random_gate(first.layer, seed)


def _scores(
    package: SaeProbes, dataset: BinaryDataset, subject: str, feature_RF: Tensor, config: BenchmarkConfig, seed: int
) -> list[Scores]:
    results = package.probe(dataset, feature_RF, config.units, seed)
    return [{"subject": subject, "seed": seed, "count": count, **asdict(result)} for count, result in results.items()]


def _summarise(
    runs: Sequence[Run], config: BenchmarkConfig, settings: Mapping[str, Any], results: Mapping[str, Any]
) -> Benchmark:
    bootstrap = Bootstrap(len(results), config.resamples, 0)
    scores, differences = [], []
    for metric in METRICS:
        for units in config.units:
            value_D = {subject: _by_dataset(results, subject, units, metric) for subject in subjects(runs)}
            for subject in value_D:
                scores.append(Score(subject, units, metric, bootstrap.mean(value_D[subject])))
            first = value_D.pop(runs[0].name)
            for subject, other in value_D.items():
                mean = bootstrap.mean(first - other)
                differences.append(Difference(subject, units, metric, mean, int((first > other).sum())))
    train, test = ([result[key] for result in results.values()] for key in ("training_texts", "test_texts"))
    return Benchmark(
        settings=settings,
        datasets=tuple(results),
        training_texts=(min(train), max(train)),
        test_texts=(min(test), max(test)),
        scores=tuple(scores),
        differences=tuple(differences),
    )


def _by_dataset(results: Mapping[str, Any], subject: str, units: int, metric: str) -> Floats:
    """Mean over seeds of a metric for each data set, [D]."""
    return np.array(
        [
            np.mean(
                [score[metric] for score in result["scores"] if score["subject"] == subject and score["count"] == units]
            )
            for result in results.values()
        ]
    )
