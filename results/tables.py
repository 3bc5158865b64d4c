"""Compute the JSON tables that have raw output: python results/tables.py

Each folder results/raw/<model>/ adds its rows, so a second model needs no new code.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).parent
RESAMPLES = 2000
KINDS = {"neurons": "best neuron of the MLP", "random-gate": "random gate"}
KINDS_OF_UNITS = {
    "smollm2-l10-transcoder": "transcoder features",
    "smollm2-l10-skip-transcoder": "skip transcoder features",
    "neurons": "neurons of the MLP",
    "random gate": "random gate",
}
HARDWARE = "2 vCPUs of an x86-64 server, no GPU"
Cell = Any
"""A number, a string, None, or a dict of numbers such as {"value": 1.0, "interval": [0.9, 1.1]}."""


def measured(interval: dict[str, float]) -> Cell:
    """A value with its 95 % interval."""
    return {"value": interval["value"], "interval": [interval["low"], interval["high"]]}


def shipped(model: str, raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per run that was evaluated alone."""
    for result in single_runs(raw):
        recovered = {name: 100 * value for name, value in result["loss_recovered_mean"].items()}
        mean_ablated = result["ce_mean_ablated"] - result["ce_original"]
        cells = [mean_ablated, measured(result["loss_increase"]), measured(recovered), result["normalized_mse"]]
        yield [model, result["run"], *cells, result["routing_share"], 100 * result["dead_share"]]


def joint(model: str, raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per evaluation of all layers, layer by layer."""
    names = {False: "trained one by one", True: "fine-tuned jointly"}
    for result in (item["result"] for item in raw["evaluations"] if "steps" in item["result"]):
        for count, step in enumerate(result["steps"], start=1):
            cells = [measured(step["loss_increase"]), step["summed_loss_increase"], step["kl"], 100 * step["agreement"]]
            yield [model, names[result["fine_tuned"]], count, *cells]


def ranks(model: str, raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per MxD: rank of a sample of its experts as matrices."""
    for result in single_runs(raw):
        matrices = result["health"]["expert_ranks"]
        if matrices:
            yield [model, result["run"], matrices["sampled"], matrices["normalized_rank"], matrices["stable_rank"]]


def probes(model: str, raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per class of each labelled dataset: F1 of the best unit of each kind."""
    sets = sorted({item["labels"] for item in raw["probes"]})
    for labels in sets:
        found = [item["result"] for item in raw["probes"] if item["labels"] == labels]
        kinds = [probe["kinds"]["experts"]["classes"] for probe in found]
        kinds += [found[0]["kinds"][kind]["classes"] for kind in KINDS]
        for name in found[0]["classes"]:
            yield [model, name, *(f1(classes[name]["top1"]) for classes in kinds)]
        mean = [float(np.mean([one["top1"]["f1"] for one in classes.values()])) for classes in kinds]
        yield [model, f"mean of {labels.split('.')[0]}", *mean]


def f1(scores: dict[str, float]) -> Cell:
    """F1 with its 95 % interval."""
    return {"value": scores["f1"], "interval": [scores["f1_low"], scores["f1_high"]]}


def benchmark_scores(model: str, raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per number of units: ROC-AUC of each subject, the mean over data sets."""
    found = [score for score in raw["scores"] if score["metric"] == "auc"]
    for units in raw["settings"]["units"]:
        yield [model, units, *(measured(score["mean"]) for score in found if score["units"] == units)]


def benchmark_differences(model: str, raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per number of units: ROC-AUC of the first run minus each other's, and data sets on which it is higher."""
    found = [each for each in raw["differences"] if each["metric"] == "auc"]
    for units in raw["settings"]["units"]:
        for each in found:
            if each["units"] == units:
                yield [
                    model,
                    units,
                    KINDS_OF_UNITS[each["subject"].split(" of ")[0]],
                    measured(each["mean"]),
                    each["better"],
                ]


MAIN_LAYER = 22
"""Layer of the work that does not name one."""
WORKS = {
    "pair": "baseline and steered pair, 64 tokens",
    "pair-texts": "the pair's texts only",
    "routing": "routing of 256 tokens",
    "index": "index of 32,768 tokens",
    "transcoder": "training a transcoder, 40,960 tokens",
    "autoencoder": "training an autoencoder, 40,960 tokens",
    "text": "steered text only, 64 tokens",
    "pairs": "8 pairs in one batch, 64 tokens",
    "pairs-texts": "the texts of 8 pairs only",
    "mxd": "training an MxD, 40,960 tokens",
}
PACKAGES = {
    "transformers": "transformers 5.23.0 with a hook",
    "nnsight": "nnsight 0.8.1",
    "sae-lens": "sae-lens 6.54.12",
    "sparsify": "sparsify 1.3.3",
    "delphi": "delphi 0.1.3, activations only",
    "paper": "the paper's code",
}


def live_peers(_model: str, raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per work and other package."""
    results = [run["result"] for run in raw["runs"]]
    for layer, point in ((result["layer"], point) for result in results for point in result["points"]):
        if point["participant"] != "mxd":
            work = WORKS[point["work"]] + ("" if layer == MAIN_LAYER else f", layer {layer}")
            yield [work, PACKAGES[point["participant"]], point["wall_speedup"], point["cpu_speedup"]]


def single_runs(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Results of runs that were evaluated alone, by layer."""
    alone = [item["result"] for item in raw["evaluations"] if "routing_share" in item["result"]]
    return sorted(alone, key=lambda result: (result["layer"], result["method"]))


def ablations(model: str, columns: dict[str, NDArray[np.float64]]) -> Iterable[list[Cell]]:
    """Amplification beside its two baselines; intervals are bootstrapped over experts."""
    up = columns["kl_amplified"]
    yield [model, "the expert", with_interval(np.median, up), None, None]
    for name, key in (
        ("random expert of the same density", "kl_random_expert"),
        ("random direction", "kl_random_direction"),
    ):
        base = columns[key]
        ratio = with_interval(lambda pair: np.median(pair[:, 0]) / np.median(pair[:, 1]), np.stack([up, base], axis=1))
        yield [model, name, with_interval(np.median, base), ratio, with_interval(np.mean, 100.0 * (up > base))]


METHODS = {
    "expert": "expert",
    "random_expert": "random expert of equal density",
    "transcoder": "transcoder feature",
    "difference_of_means": "difference of means",
    "random_direction": "random direction",
    "classifier": "classifier of words",
}


def ablated(model: str, columns: dict[str, NDArray[np.float64]]) -> Iterable[list[Cell]]:
    """Effect of ablating one expert, and how far its contributions are from one fixed direction."""
    loss = columns["loss_increase"]
    yield [model, "loss increase when ablated, nats (median)", with_interval(np.median, loss)]
    yield [model, "experts whose ablation raises the loss, %", with_interval(np.mean, 100.0 * (loss > 0))]
    outside = with_interval(np.median, 100 * columns["input_dependence"])
    yield [model, "contribution outside its mean direction, % of squared norm (median)", outside]


def with_interval(statistic: Callable[[NDArray[np.floating[Any]]], Any], sample: NDArray[np.floating[Any]]) -> Cell:
    """A statistic of a sample with its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    drawn = [float(statistic(sample[rng.integers(0, len(sample), len(sample))])) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"value": float(statistic(sample)), "interval": [float(low), float(high)]}


def read_columns(path: Path) -> dict[str, NDArray[np.float64]]:
    """The columns of a compressed CSV file of numbers."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        header, *rows = list(csv.reader(lines))
    return dict(zip(header, np.array(rows, dtype=np.float64).T, strict=True))


def privacy(_model: str, raw: dict[str, Any]) -> Iterable[list[Cell]]:
    """One row per kind of text before and after ``mxd protect``, and one per relearning attack."""
    kinds = raw["variations"]
    attack = raw["relearning"]
    rows = {
        "the four passages": raw["protected"],
        "without the first third of the words": kinds["later beginning"],
        "paraphrases": kinds["given"],
        "in swapped case": kinds["swapped case"],
        "five known passages, not protected": kinds["unprotected"],
        "other text": raw["retained"]["confidence"],
        "two passages": {"before": attack["original"], "after": attack["protected"]},
        "the same two, relearned from the others": {
            "before": attack["original_attacked"],
            "after": attack["attacked"],
        },
    }
    for name, row in rows.items():
        pairs = [[100 * row[stage]["true_token"], row[stage]["confidence_distance"]] for stage in ("before", "after")]
        (true_before, before), (true_after, after) = pairs
        yield [name, row["before"]["predictions"], true_before, true_after, before, after]


TABLES: dict[str, dict[str, Any]] = {
    "privacy/known-passages": {
        "measured": "confidence on four well-known passages before and after 10 steps of mxd protect",
        "model": "SmolLM2-135M-Instruct",
        "layer": 22,
        "tokens": "12,288 tokens of other text",
        "date": "2026-11-27",
        "hardware": HARDWARE,
        "command": "mxd protect smollm2-l22 --passages FILE --unprotected FILE --retain data/demo/text.jsonl.gz "
        "--tokens 32768",
        "columns": [
            "measured on (SmolLM2-135M)",
            "predictions",
            "true token, %, before",
            "after",
            "confidence distance, before",
            "after, distance",
        ],
        "rows": privacy,
    },
    "shipped-runs/runs": {
        "measured": "one run in place of its MLP",
        "tokens": "10,240 held-out tokens in 80 sequences",
        "columns": [
            "model",
            "run",
            "mean-ablated MLP, nats",
            "loss increase, nats",
            "loss recovered, %",
            "normalised MSE",
            "routing share",
            "dead, %",
        ],
        "rows": shipped,
    },
    "whole-model/joint": {
        "measured": "the first n MLPs replaced jointly",
        "tokens": "10,240 held-out tokens in 80 sequences",
        "columns": [
            "model",
            "runs",
            "MLPs",
            "loss increase, nats",
            "sum of each alone",
            "KL, nats",
            "same top token, %",
        ],
        "rows": joint,
    },
    "expert-rank/runs": {
        "measured": "rank of experts as matrices",
        "tokens": "none: from the weights",
        "columns": ["model", "run", "experts", "numerical rank, share of the largest possible", "stable rank"],
        "rows": ranks,
    },
    "probing/classes": {
        "measured": "F1 of the best single unit, chosen on validation and scored once on test",
        "tokens": "1,500 passages per dataset, about 300 of them test",
        "columns": ["model", "class", "MxD", "transcoder", *KINDS.values()],
        "rows": probes,
    },
    "benchmark/scores": {
        "measured": "ROC-AUC of sparse probes on sae-probes' data sets; intervals over data sets",
        "tokens": "300 texts per data set, 200 training and 99 test; last token of at most 64",
        "seeds": 3,
        "date": "2026-11-27",
        "columns": ["model", "units per probe", "MxD experts", *KINDS_OF_UNITS.values()],
        "rows": benchmark_scores,
    },
    "benchmark/differences": {
        "measured": "ROC-AUC of the MxD minus that of others, paired by data set; intervals over data sets",
        "tokens": "300 texts per data set, 200 training and 99 test; last token of at most 64",
        "seeds": 3,
        "date": "2026-11-27",
        "columns": ["model", "units per probe", "MxD minus", "difference", "data sets on which the MxD is higher"],
        "rows": benchmark_differences,
    },
    "performance/live-peers": {
        "measured": "time of the other package divided by ours, median of interleaved rounds; above 1 ours is faster",
        "tokens": "given per row",
        "hardware": "2 vCPUs of an x86-64 server (AMD EPYC with AVX-512 BF16), no GPU, idle",
        "date": "2026-11-25 (index, training) and 2026-11-29",
        "columns": ["work on SmolLM2-135M, layer 22, two threads", "compared with", "speed, peer = 1", "in CPU time"],
        "rows": live_peers,
    },
    "steering/amplified": {
        "measured": "KL of the next token at an expert's top examples when it is amplified by its 99th percentile",
        "tokens": "256,000 indexed tokens, 25,007 examples of 4,080 experts",
        "columns": ["model", "amplified", "median KL, nats", "ratio of medians", "expert larger, %"],
        "rows": ablations,
    },
    "steering/ablated": {
        "measured": "each expert ablated by itself at its top examples",
        "tokens": "256,000 indexed tokens, 25,007 examples of 4,080 experts",
        "columns": ["model", "measure", "value"],
        "rows": ablated,
    },
}


RAW_OUTPUT = {
    "steering": "ablations.csv.gz",
    "benchmark": "benchmark.json",
    "performance": "peers.json",
    "privacy": "privacy.json",
}
"""Folder of tables -> its raw output, if that is not ``evaluations.json``."""


def main() -> None:
    """Write every table from the raw output of all models."""
    for name, table in TABLES.items():
        kind = RAW_OUTPUT.get(name.partition("/")[0], "evaluations.json")
        rows: list[list[Cell]] = []
        for path in sorted(RESULTS.glob(f"raw/*/{kind}")):
            raw = read_columns(path) if kind.endswith(".gz") else json.loads(path.read_text("utf-8"))
            rows += table["rows"](path.parent.name, raw)
        source = f"computed by results/tables.py from results/raw/*/{kind}"
        facts = {"seeds": 1, "hardware": HARDWARE, "date": "2026-11-23", "source": source}
        facts |= {fact: table[fact] for fact in facts if fact in table}
        write(RESULTS / f"{name}.json", {**table, **facts, "rows": rows})


def write(path: Path, table: dict[str, Any]) -> None:
    """Write a table as JSON with one row per line."""
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in table["rows"])
    head = "".join(f' "{key}": {json.dumps(table[key], ensure_ascii=False)},\n' for key in table if key != "rows")
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{\n{head} "rows": [\n{rows}\n ]\n}}\n', "utf-8")


if __name__ == "__main__":
    main()
