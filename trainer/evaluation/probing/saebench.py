"""Results of the benchmark in SAEBench's format: the output of its evaluation ``sparse_probing_sae_probes`` (0.6.0)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mxd.trainer.config.analysis import BenchmarkConfig
from mxd.trainer.evaluation.probing.benchmark import DATASETS_FOLDER, Benchmark, subjects
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.files import atomic_write, read_json

METRICS = {"test_accuracy": "accuracy", "test_auc": "auc", "test_f1": "f1"}
"""SAEBench's name of a metric -> ours."""
COLUMNS = (1, 2, 5, 10, 20, 50, 100)
"""Numbers of units for which SAEBench has fields of their own."""


def write_saebench(
    runs: Sequence[Run], config: BenchmarkConfig, benchmark: Benchmark, folder: Path, program: str
) -> list[Path]:
    """Write one file per subject and seed to ``FOLDER/saebench``.

    Args:
        program: name and version of the program, in place of SAEBench's commit.
    """
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
    details = [_detail(result, subject, seed) for result in results]
    by_count = {
        str(count): {
            metric: float(np.mean([detail["sae_metrics_by_k"][str(count)][metric] for detail in details]))
            for metric in METRICS
        }
        for count in config.units
    }
    return {
        "eval_type_id": "sparse_probing_sae_probes",
        "eval_config": {
            "model_name": benchmark.settings["language_model"],
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
        "eval_result_unstructured": {"subject": subject, "settings": dict(benchmark.settings)},
    }


def _detail(result: Mapping[str, Any], subject: str, seed: int) -> dict[str, Any]:
    by_count = {
        str(score["count"]): {metric: score[ours] for metric, ours in METRICS.items()}
        for score in result["scores"]
        if score["subject"] == subject and score["seed"] == seed
    }
    return {"dataset_name": result["dataset"], **dict(_columns(by_count)), "sae_metrics_by_k": by_count}


def _columns(by_count: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, float]]:
    for count in COLUMNS:
        for metric, value in by_count.get(str(count), {}).items():
            yield f"sae_top_{count}_{metric}", value
