"""A benchmark with random scores, written as ``mxd benchmark`` writes it."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from mxd.trainer.config.analysis import BENCHMARK_FOLDER, BENCHMARK_SUMMARY
from mxd.trainer.evaluation.benchmark import BASELINES, METRICS, _baseline
from mxd.trainer.evaluation.benchmark_results import Benchmark, BenchmarkDifference, BenchmarkScore, BenchmarkSettings
from mxd.trainer.utils.bootstrap import Bootstrap

DATASETS = ("5_hist_fig_ismale", "36_sciq_tf", "91_glue_qqp", "96_spam_is")
UNITS = (1, 5)


def write_benchmark(data: Path, *runs: str) -> Benchmark:
    """Write a summary of runs of layer 3 into a data folder."""
    names = [*runs, *(_baseline(kind, 3) for kind in BASELINES)]
    bootstrap, generator = Bootstrap(len(DATASETS), 100, 0), np.random.default_rng(0)
    scores, differences = [], []
    for metric in METRICS:
        for units in UNITS:
            value_D = {name: generator.uniform(0.4, 1, len(DATASETS)) for name in names}
            scores += [BenchmarkScore(name, units, metric, bootstrap.mean(value_D[name])) for name in names]
            for name in names[1:]:
                gain_D = value_D[names[0]] - value_D[name]
                differences.append(
                    BenchmarkDifference(name, units, metric, bootstrap.mean(gain_D), int((gain_D > 0).sum()))
                )
    benchmark = Benchmark(
        settings=BenchmarkSettings("0.4.2", "lm", "float32", 300, 64, UNITS, (42, 43), dict.fromkeys(runs, "0" * 32)),
        datasets=DATASETS,
        training_texts=(150, 200),
        test_texts=(99, 99),
        scores=tuple(scores),
        differences=tuple(differences),
    )
    folder = data / BENCHMARK_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BENCHMARK_SUMMARY).write_text(json.dumps(asdict(benchmark)))
    return benchmark
