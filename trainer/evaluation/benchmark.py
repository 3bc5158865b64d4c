"""The benchmark of sae-probes: sparse probes on experts, features, MLP neurons and a random gate.

The package has 113 binary data sets and the probes of Kantamneni et al., "Are Sparse Autoencoders Useful?" (arXiv
2502.16681). Its data sets, splits, selection of units and probes are used unchanged, in the setting "normal".

All units of a data set are activations on the last token of each text, from one forward pass per text. Each finished
data set is a file, so that the benchmark can be interrupted and continued, and runs can be added later:

FOLDER/settings.json        settings, and a digest of each run's weights
FOLDER/datasets/NAME.json   test scores of every probe
FOLDER/summary.json         means over data sets, with intervals
FOLDER/saebench/            the same as the output of SAEBench's ``sparse_probing_sae_probes`` (0.6.0)

Shapes: R texts, F features, T tokens, I input width, O output width, H hidden width, D data sets.
"""

import json
import sys
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mxd.trainer.config.analysis import BENCHMARK_SUMMARY, BenchmarkConfig
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.benchmark_results import Benchmark, BenchmarkDifference, BenchmarkScore, BenchmarkSettings
from mxd.trainer.evaluation.probing import LayerUnits, capture_units, random_gate_weights
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.tokenizer import after_start, start_token_id
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import weights_digest
from mxd.trainer.utils.bootstrap import Bootstrap, Floats
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import atomic_write, exclusive_lock, read_json

VERSION = "0.4.2"
INSTALL = f"pip install --no-deps sae-probes=={VERSION}"
"""Without dependencies: SAELens, TransformerLens and xgboost are not used here."""
UNUSED = {"sae_lens": "SAE", "transformer_lens": "HookedTransformer", "xgboost": "XGBClassifier"}
"""Package that sae-probes imports for other probes -> the name that it imports."""
LARGEST_TRAINING_SPLIT, SMALLEST_TEST_SPLIT = 1024, 100
"""Sizes in sae-probes' setting "normal"."""
SAMPLE_SEED = 0
"""Random seed of the texts, if not all are used. It is no setting, so that all runs see the same texts."""

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BinaryDataset:
    name: str
    texts: tuple[str, ...]
    label_R: Labels
    """0 or 1 for each text."""

    @property
    def split_sizes(self) -> tuple[int, int]:
        train = min(len(self.texts) - SMALLEST_TEST_SPLIT, LARGEST_TRAINING_SPLIT)
        return train, len(self.texts) - train - 1


@dataclass(frozen=True)
class ProbeResult:
    """Test scores of one probe."""

    units: tuple[int, ...]
    """Indices of the features that the probe reads."""
    auc: float
    """Area under the ROC curve."""
    accuracy: float
    f1: float
    """Mean over both classes, weighted by their sizes."""


class SaeProbes:
    """The functions of sae-probes that the benchmark calls."""

    def __init__(self) -> None:
        """Import the package. Raises UserError if the package is not installed, or in another version."""
        try:
            installed = version("sae-probes")
        except PackageNotFoundError as error:
            raise UserError(f"The package sae-probes is not installed. Run '{INSTALL}'.") from error
        if installed != VERSION:
            raise UserError(f"sae-probes {installed} is installed, but version {VERSION} is required. Run '{INSTALL}'.")
        with _stand_ins(), warnings.catch_warnings():
            self._data: Any = import_module("sae_probes.utils_data")
            self._training: Any = import_module("sae_probes.utils_training")
            self._selection: Any = import_module("sae_probes.run_sae_evals")

    def dataset_names(self, chosen: Sequence[str] | None) -> list[str]:
        """Return the ``chosen`` names of data sets, by default all. Raises UserError if there is no such data set."""
        names: list[str] = self._data.get_numbered_binary_tags()
        unknown = [name for name in chosen or () if name not in names]
        if unknown:
            raise UserError(f"Unknown data set '{unknown[0]}'. sae-probes has {names[0]}, {names[1]}, … {names[-1]}.")
        return list(chosen or names)

    def dataset(self, name: str, texts: int | None) -> BinaryDataset:
        """Read a data set, or a random sample of ``texts`` of it with equal classes."""
        label_R: Labels = np.asarray(self._data.get_yvals(name), dtype=np.int64)
        prompts = [str(prompt) for prompt in self._data.read_numbered_dataset_df(name)["prompt"]]
        chosen = np.arange(len(prompts))
        if texts is not None:
            count = min(texts, 2 * int(np.bincount(label_R).min()))
            chosen, _ = self._data.get_train_test_indices(label_R, count, 0, seed=SAMPLE_SEED)
        return BinaryDataset(name, tuple(prompts[index] for index in chosen), label_R[chosen])

    def probe(
        self, dataset: BinaryDataset, feature_RF: Tensor, units: Sequence[int], seed: int
    ) -> dict[int, ProbeResult]:
        """Train and test a probe for each number of units: those whose class means differ most on the training split.

        This is ``run_sae_eval`` of sae-probes without its files: logistic regression with an L1 penalty, whose strength
        is chosen on validation texts.
        """
        train_R, test_R = self._data.get_train_test_indices(dataset.label_R, *dataset.split_sizes, 0.5, seed)
        label_R = torch.from_numpy(dataset.label_R)
        train_RF, test_RF = feature_RF[train_R], feature_RF[test_R]
        normalise = self._selection.mean_act_normalization
        order_F = self._selection.get_sorted_indices(train_RF, label_R[train_R], normalise)
        results = {}
        for count in units:
            chosen = order_F[:count]
            with warnings.catch_warnings():
                # Separable classes do not converge, and scikit-learn renamed the penalty since.
                warnings.simplefilter("ignore")
                metrics = self._training.find_best_reg(
                    train_RF[:, chosen], label_R[train_R], test_RF[:, chosen], label_R[test_R], penalty="l1", seed=seed
                ).metrics
            scores = (metrics.test_auc, metrics.test_acc, metrics.test_f1)
            results[count] = ProbeResult(tuple(chosen.tolist()), *scores)
        return results


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Let sae-probes import the packages that it does not use here, inside the context, where they are missing."""
    missing = [name for name in UNUSED if find_spec(name) is None]
    for name in missing:
        module: Any = ModuleType(name)
        setattr(module, UNUSED[name], object)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


TOKENS_PER_BATCH = 2048
STOPPED = "Stopped. The finished data sets are kept; run the same command to continue."
METRICS = ("auc", "accuracy", "f1")


@torch.no_grad()
def last_tokens(
    texts: Sequence[str],
    layers: Sequence[int],
    language_model: LanguageModel,
    tokens: int,
    start_token: str | None,
    callbacks: Callbacks,
) -> dict[int, LayerUnits]:
    """Capture several layers on the last token of each text, in one forward pass per text, which reads the start token
    and the last ``tokens``."""
    start, count = start_token_id(language_model.tokenizer, start_token), min(tokens, language_model.max_tokens - 1)
    encoded = language_model.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    rows = [after_start(start, ids[-count:]) for ids in encoded]
    order, parts = sorted(range(len(rows)), key=lambda row: len(rows[row])), []
    for batch in _batches(order, rows):
        callbacks.check_cancelled(STOPPED)
        # Padding follows the texts, so a causal language model does not see it.
        width = len(rows[batch[-1]])
        ids_BT = torch.tensor([rows[row] + rows[row][:1] * (width - len(rows[row])) for row in batch])
        last_B = torch.tensor([index * width + len(rows[row]) - 1 for index, row in enumerate(batch)])
        parts.append(capture_units(language_model, layers, ids_BT, last_B))
    position_R = torch.tensor(order).argsort()
    joined = {}
    for layer in layers:
        columns = zip(*((*part[layer].mlp, part[layer].neuron_TH) for part in parts), strict=True)
        *mlp, neuron_TH = (torch.cat(column)[position_R.to(column[0].device)] for column in columns)
        joined[layer] = LayerUnits(MlpActivations(*mlp), neuron_TH)
    return joined


def _batches(order: Sequence[int], rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    batch: list[int] = []
    for row in order:
        if batch and len(rows[row]) * (len(batch) + 1) > TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


Scores = Mapping[str, Any]
"""Scores of one probe: ``subject``, ``seed``, ``count``, ``units``, ``auc``, ``accuracy`` and ``f1``."""
SETTINGS_FILE, DATASETS_FOLDER = "settings.json", "datasets"


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
        files = {name: folder / DATASETS_FOLDER / f"{name}.json" for name in names}
        for number, (name, path) in enumerate(files.items()):
            callbacks.on_progress(number, len(names), name)
            _probe_dataset(package, runs, path, config, language_model, callbacks)
        callbacks.on_progress(len(names), len(names), "")
        results = {name: read_json(path) for name, path in files.items()}
        benchmark = _summarise(runs, config, settings, results)
        atomic_write(folder / BENCHMARK_SUMMARY, json.dumps(asdict(benchmark), indent=1) + "\n")
    return benchmark


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
    weights = {run.name: weights_digest([run]) for run in runs}
    path = folder / SETTINGS_FILE
    if path.is_file():
        stored = read_json(path)
        known = stored.pop("weights")
        changed = [name for name in settings if stored.get(name) != settings[name]]
        changed += [f"weights of {name}" for name in weights if known.get(name, weights[name]) != weights[name]]
        if changed:
            raise UserError(f"{folder} holds results with other settings: {', '.join(changed)}. Give another folder.")
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
    path: Path,
    config: BenchmarkConfig,
    language_model: LanguageModel,
    callbacks: Callbacks,
) -> None:
    """Add the scores of the subjects that a data set's file lacks."""
    name = path.stem
    stored = read_json(path) if path.is_file() else {"scores": []}
    missing = set(subjects(runs)) - {score["subject"] for score in stored["scores"]}
    if not missing:
        return
    dataset = package.dataset(name, config.texts)
    layers = sorted({run.config.layer for run in runs})
    start_token = runs[0].config.text.start_token
    captured = last_tokens(dataset.texts, layers, language_model, config.tokens, start_token, callbacks)

    def features(seed: int) -> Iterator[tuple[str, Tensor]]:
        for run in runs:
            yield run.name, captured[run.config.layer].experts(run.layer)
        for layer, tokens in captured.items():  # the random gate has the size of the layer's first run
            first = next(run for run in runs if run.config.layer == layer).layer
            yield _baseline("neurons", layer), tokens.neuron_TH
            yield _baseline("random gate", layer), tokens.random_gate(first, random_gate_weights(first, seed))

    scores: list[Scores] = list(stored["scores"])
    for seed in config.seeds:
        for subject, feature_RF in features(seed):
            callbacks.check_cancelled(STOPPED)
            if subject in missing:
                results = package.probe(dataset, feature_RF, config.units, seed)
                key = {"subject": subject, "seed": seed}
                scores += [{**key, "count": count, **asdict(result)} for count, result in results.items()]
    train, test = dataset.split_sizes
    document = {"dataset": name, "training_texts": train, "test_texts": test, "scores": scores}
    atomic_write(path, json.dumps(document) + "\n")


def _summarise(
    runs: Sequence[Run], config: BenchmarkConfig, settings: Mapping[str, Any], results: Mapping[str, Any]
) -> Benchmark:
    bootstrap = Bootstrap(len(results), config.resamples, 0)
    scores, differences = [], []

    def by_dataset(metric: str, units: int, subject: str) -> Floats:
        """Mean over seeds of a metric for each data set, [D]."""
        of_probes = ([it for it in result["scores"] if it["subject"] == subject] for result in results.values())
        return np.array([np.mean([it[metric] for it in probes if it["count"] == units]) for probes in of_probes])

    for metric in METRICS:
        for units in config.units:
            value_D = {subject: by_dataset(metric, units, subject) for subject in subjects(runs)}
            for subject in value_D:
                scores.append(BenchmarkScore(subject, units, metric, bootstrap.mean(value_D[subject])))
            first = value_D.pop(runs[0].name)
            for subject, other in value_D.items():
                mean = bootstrap.mean(first - other)
                differences.append(BenchmarkDifference(subject, units, metric, mean, int((first > other).sum())))
    train, test = ([result[key] for result in results.values()] for key in ("training_texts", "test_texts"))
    return Benchmark(
        settings=BenchmarkSettings(**settings),
        datasets=tuple(results),
        training_texts=(min(train), max(train)),
        test_texts=(min(test), max(test)),
        scores=tuple(scores),
        differences=tuple(differences),
    )


SAEBENCH_METRICS = {"test_accuracy": "accuracy", "test_auc": "auc", "test_f1": "f1"}
"""SAEBench's name of a metric -> ours."""
COLUMNS = (1, 2, 5, 10, 20, 50, 100)
"""Numbers of units for which SAEBench has fields of their own."""


def write_saebench(
    runs: Sequence[Run], config: BenchmarkConfig, benchmark: Benchmark, folder: Path, program: str
) -> list[Path]:
    """Write one file per subject and seed to ``FOLDER/saebench``, with the ``program`` and its version in place of
    SAEBench's commit."""
    results = [read_json(folder / DATASETS_FOLDER / f"{name}.json") for name in benchmark.datasets]
    (folder / "saebench").mkdir(exist_ok=True)
    layers = {run.name: run.layer.config.model_dump(mode="json") for run in runs}
    written = []
    for subject in subjects(runs):
        for seed in config.seeds:
            document = _document(subject, seed, config, benchmark, results, program)
            document["sae_cfg_dict"] = layers.get(subject)
            path = folder / "saebench" / f"{subject.replace(' ', '-')}_seed-{seed}_eval_results.json"
            atomic_write(path, json.dumps(document, indent=2) + "\n")
            written.append(path)
    return written


def _document(
    subject: str,
    seed: int,
    config: BenchmarkConfig,
    benchmark: Benchmark,
    results: Sequence[Mapping[str, Any]],
    program: str,
) -> dict[str, Any]:
    details = []
    for result in results:
        scores_by_count = {
            str(score["count"]): {metric: score[ours] for metric, ours in SAEBENCH_METRICS.items()}
            for score in result["scores"]
            if score["subject"] == subject and score["seed"] == seed
        }
        columns = dict(_columns(scores_by_count))
        details.append({"dataset_name": result["dataset"], **columns, "sae_metrics_by_k": scores_by_count})
    by_count = {
        str(count): {
            metric: float(np.mean([detail["sae_metrics_by_k"][str(count)][metric] for detail in details]))
            for metric in SAEBENCH_METRICS
        }
        for count in config.units
    }
    return {
        "eval_type_id": "sparse_probing_sae_probes",
        "eval_config": {
            "model_name": benchmark.settings.language_model,
            "random_seed": seed,
            "dataset_names": list(benchmark.datasets),
            "reg_type": "l1",
            "setting": "normal",
            "ks": list(config.units),
            "binarize": False,
            "include_llm_baseline": False,
            "model_cache_path": None,
        },
        "eval_id": str(uuid.uuid4()),
        "datetime_epoch_millis": int(time.time() * 1000),
        "eval_result_metrics": {"llm": {}, "sae": dict(_columns(by_count))},
        "eval_result_details": details,
        "sae_metrics_by_k": by_count,
        "sae_bench_commit_hash": program,
        "sae_lens_id": None,
        "sae_lens_release_id": None,
        "sae_lens_version": None,
        "eval_result_unstructured": {"subject": subject, "settings": asdict(benchmark.settings)},
    }


def _columns(by_count: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, float]]:
    for count in COLUMNS:
        for metric, value in by_count.get(str(count), {}).items():
            yield f"sae_top_{count}_{metric}", value
