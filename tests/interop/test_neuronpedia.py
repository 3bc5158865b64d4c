"""Neuronpedia's own converter takes the batches of every run of the demo whole."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from mxd.backend.cli.main import run as mxd
from mxd.backend.export.neuronpedia import MAX_BYTES
from mxd.trainer.storage.run import Run, run_names
from tests.interop.conftest import Table, browse
from tests.interop.environments import NEURONPEDIA_COMMIT, Oracles, neuronpedia

CONVERTER = "neuronpedia_utils/convert-saedashboard-to-neuronpedia-export.py"


def convert(oracles: Oracles, batches: Path, layer: int, run: str, folder: Path) -> Path:
    utils = neuronpedia() / "utils" / "neuronpedia-utils"
    options = {
        "saedashboard-output-dir": batches,
        "creator-name": "Somebody",
        "release-id": "demo",
        "release-title": "Demo",
        "url": "https://example.org",
        "model-name": "language-model",
        "neuronpedia-source-set-id": run,
        "neuronpedia-source-set-description": "Demo",
        "hf-weights-repo-id": "somebody/demo",
        "hf-weights-path": "demo/layer.safetensors",
        "hook-point": "hook_mlp_out",
        "layer-num": layer,
        "prompts-huggingface-dataset-path": "somebody/text",
        "n-prompts-total": 2000,
        "n-tokens-in-prompt": 128,
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    folder.mkdir()
    variables = {"PYTHONPATH": str(utils), "DEFAULT_CREATOR_ID": "clkht01d40000jv08hvalcvly"}
    oracles.run("neuronpedia", utils / CONVERTER, *words, cwd=folder, **variables)
    return folder / "exports" / "language-model" / f"{layer}-{run}"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_every_run_is_converted(demo: Path, tmp_path: Path, oracles: Oracles, table: Table) -> None:
    sizes, converted, examples, labels = [], 0, 0, 0
    for name in run_names(demo):
        run, batches = Run.load(name, demo), tmp_path / f"{name}-batches"
        assert mxd(["export", name, "--format", "neuronpedia", "--out", str(batches), "--data", str(demo)]) == 0
        read = oracles.ask("neuronpedia", "read_batches", batches)
        content = [json.loads(path.read_text())["features"] for path in sorted(batches.glob("batch-*.json"))]
        features = [feature for batch in content for feature in batch]
        sizes += [len(json.dumps(it, ensure_ascii=False, separators=(",", ":")).encode()) for it in features]
        out = convert(oracles, batches, run.config.layer, name, tmp_path / name)
        rows = [row for path in (out / "features").glob("*.gz") for row in lines(path)]
        activations = [row for path in (out / "activations").glob("*.gz") for row in lines(path)]
        assert read["features"] == len(features) == len(rows)
        assert len(activations) == sum(len(feature["activations"]) for feature in features)
        source = rows[0]["layer"]
        explanations = [row for path in (batches / "explanations").glob("*.gz") for row in lines(path)]
        assert {row["layer"] for row in explanations} == {source}
        shutil.copytree(batches / "explanations", out / "explanations")
        browsed = browse(out, tmp_path / f"{name}-browsed")
        # Values have three decimal places, so that small ones are 0. Examples without an activation are left out.
        assert browsed.examples == sum(max(row["values"]) > 0 for row in activations)
        assert browsed.labels > 0
        converted, examples, labels = converted + len(rows), examples + len(activations), labels + len(explanations)
    assert max(sizes) <= MAX_BYTES
    count = len(run_names(demo))
    summary = (
        f"{converted:,} experts, {examples:,} examples, {labels:,} labels of {count} runs; largest {max(sizes):,} B"
    )
    table.add("sae-dashboard's `NeuronpediaDashboardBatch`", read["version"], "reads our batches", "written back equal")
    table.add("Neuronpedia's converter", NEURONPEDIA_COMMIT[:7], "converts our batches", summary)
    result = "all examples with an activation, and the labels, are browsed"
    table.add("Neuronpedia's converter", NEURONPEDIA_COMMIT[:7], "wrote exports, which we import", result)
