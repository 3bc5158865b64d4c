"""Run a benchmark with ours and with sae-probes' own entry point on the same activations: FOLDER RUN DATASET.

Prints the largest difference of all scores, the units that differ, and whether SAEBench's class reads our file.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from pydantic import TypeAdapter
from sae_bench.evals.sparse_probing_sae_probes.eval_output import SparseProbingSaeProbesEvalOutput
from sae_probes import run_sae_evals

from mxd.trainer.config.analysis import BenchmarkConfig
from mxd.trainer.evaluation.benchmark import SaeProbes, last_tokens, run_benchmark, write_saebench
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS

SEED = 42


class Unchanged:
    """Stands for the encoder: the cached activations are those of the experts already."""

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return x


folder, name, dataset = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
run = Run.load(name)
language_model = LanguageModel.load(run.language_model_source, "cpu")
config = BenchmarkConfig(datasets=(dataset,), tokens=16, seeds=(SEED,))
result = run_benchmark([run], config, language_model, folder, NO_CALLBACKS)
files = write_saebench([run], config, result, folder, "test")
ours = json.loads((folder / "datasets" / f"{dataset}.json").read_text())["scores"]

texts, layer = SaeProbes().dataset(dataset, None).texts, run.config.layer
captured = last_tokens(texts, [layer], language_model, 16, run.config.text.start_token, NO_CALLBACKS)[layer]
features = {name: captured.experts(run.layer), f"neurons of layer {layer}": captured.neuron_TH}
difference, other_units, compared = 0.0, 0, 0
for subject, feature in features.items():
    cache, results = folder / f"cache-{len(subject)}", folder / f"results-{len(subject)}"
    (cache / "model_activations_x").mkdir(parents=True)
    torch.save(feature, cache / "model_activations_x" / f"{dataset}_blocks.{layer}.x.pt")
    run_sae_evals(
        sae=Unchanged(),
        model_name="x",
        hook_name=f"blocks.{layer}.x",
        reg_type="l1",
        setting="normal",
        ks=list(config.units),
        results_path=results,
        model_cache_path=cache,
        datasets=[dataset],
        device="cpu",
        seed=SEED,
    )
    for theirs in json.loads(next(results.rglob("*.json")).read_text()):
        own = next(score for score in ours if score["subject"] == subject and score["count"] == theirs["k"])
        pairs = (("auc", "test_auc"), ("accuracy", "test_acc"), ("f1", "test_f1"))
        difference = max(difference, *(abs(own[a] - theirs[b]) for a, b in pairs))
        other_units += own["units"] != theirs["indices"]
        compared += 1

document = json.loads(files[0].read_text())
read = TypeAdapter(SparseProbingSaeProbesEvalOutput).validate_python(document)
print(
    json.dumps(
        {
            "version": version("sae-probes"),
            "saebench": version("sae-bench"),
            "difference": difference,
            "other_units": other_units,
            "compared": compared,
            "auc": read.eval_result_metrics.sae.sae_top_1_test_auc,
            "expected_auc": next(score["auc"] for score in ours if score["subject"] == name and score["count"] == 1),
        }
    )
)
