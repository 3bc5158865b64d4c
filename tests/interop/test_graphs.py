"""Neuronpedia's schemas and converter take our graphs and batches, and circuit-tracer's page shows graphs offline."""

import gzip
import json
import os
import shutil
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

import jsonschema
from playwright.sync_api import Route, sync_playwright

from mxd.backend.cli.main import run as mxd
from mxd.backend.database.engine import opened, reading
from mxd.backend.export.attribution_graph import FEATURE, INDEX_FILE, export_circuit
from mxd.backend.export.tables import MAX_BYTES
from mxd.backend.settings import Settings
from mxd.trainer.analysis.circuits.checking import check
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run, run_names
from scripts.circuit_tracer_page import make_page, serve
from tests.browser.conftest import BROWSERS, QUIET
from tests.interop.conftest import CACHE, NEURONPEDIA_COMMIT, add_row, ask, browse, neuronpedia, run_script

PROMPTS, MEASURED = 100, 10
NODES = ".link-graph text.node"
OURS = ("127.0.0.1", "localhost")


def _make_graphs(demo: Path, folder: Path, prompts: int, measured: int) -> Path:
    """Graphs of the first words of texts; the effects of their experts are measured in the first ones."""
    runs = [run for name in run_names(demo) if (run := Run.load(name, demo)).config.method == "mxd"]
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    with gzip.open(demo / "text.jsonl.gz", "rt") as file:
        texts = [json.loads(line)["text"] for line in islice(file, prompts)]
    with opened(Settings(data=demo).database_url) as database, reading(database) as session:
        for number, text in enumerate(texts):
            config = CircuitConfig(prompt=" ".join(text.split()[:8])[:200])
            circuit = trace(language_model, runs, config)
            checked = check(language_model, runs, config, circuit) if number < measured else None
            export_circuit(session, runs, circuit, checked, folder)
    return folder


def written(graphs: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in graphs.glob("*.json") if path.name != INDEX_FILE}


def test_graphs_follow_the_schema(demo: Path, tmp_path: Path) -> None:
    graphs = _make_graphs(demo, tmp_path / "graphs", PROMPTS, MEASURED)
    api = neuronpedia() / "apps" / "webapp" / "app" / "api" / "graph"
    errors = {"graph": 0, "feature-details": 0}
    files = {
        "graph": [path for path in graphs.glob("*.json") if path.name != "graph-metadata.json"],
        "feature-details": list(graphs.glob("features/*.json")),
    }
    for name, paths in files.items():
        validator = jsonschema.Draft7Validator(json.loads((api / f"{name}-schema.json").read_text()))
        errors[name] = sum(len(list(validator.iter_errors(json.loads(path.read_text())))) for path in paths)
        checked = f"{len(paths):,} of our files"
        add_row(f"Neuronpedia's {name}-schema.json", NEURONPEDIA_COMMIT[:7], checked, f"{errors[name]} errors")
    read = ask("circuit-tracer", "read_graphs", graphs)
    checked = f"{read['graphs']} graphs, {read['features']:,} feature files"
    add_row("circuit-tracer's front-end models (a fork)", "0.5.0", checked, "all read")
    nodes = [node for path in files["graph"] for node in json.loads(path.read_text())["nodes"]]
    assert sum(errors.values()) == 0
    assert read == {"graphs": PROMPTS, "features": len(files["feature-details"])}
    assert any("measured_effect" in node for node in nodes)


def test_their_page_shows_graphs_without_the_internet(demo: Path, tmp_path: Path) -> None:
    graphs = _make_graphs(demo, tmp_path / "graphs", 2, 1)
    slug, graph = max(written(graphs).items(), key=lambda item: "measured" in json.dumps(item[1]))
    expert = next(node for node in graph["nodes"] if node["feature_type"] == FEATURE and "measured_effect" in node)
    elsewhere: list[str] = []

    def only_ours(route: Route) -> None:
        if route.request.url.split("/")[2].split(":")[0] in OURS:
            route.continue_()
        else:
            elsewhere.append(route.request.url)
            route.abort()

    with serve(graphs, make_page(CACHE / "circuit-tracer-page"), 0) as server, sync_playwright() as playwright:
        Thread(target=server.serve_forever, daemon=True).start()
        found = os.environ.get("MXD_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)))
        page = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", *QUIET]).new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.route("**/*", only_ours)
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html?slug={slug}&clickedId={expert['jsNodeId']}")
        page.wait_for_load_state("networkidle")
        assert errors == []
        page.locator(NODES).first.wait_for()
        shown, said = page.locator(NODES).count(), page.inner_text("body")
        examples = page.locator(".feature-example-list .text-wrapper")
        examples.first.wait_for()
        example_count = examples.count()
        server.shutdown()
    assert (errors, elsewhere) == ([], [])
    assert shown == len(graph["nodes"])
    assert expert["clerp"] in said
    assert example_count > 0
    checked = "shows our graphs with no other web site: nodes, labels, effects, examples"
    add_row("circuit-tracer's page (a fork)", "0.5.0", checked, f"{shown} of {shown} nodes")


CONVERTER = "neuronpedia_utils/convert-saedashboard-to-neuronpedia-export.py"


def convert(batches: Path, layer: int, run: str, folder: Path) -> Path:
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
    run_script("neuronpedia", utils / CONVERTER, *words, cwd=folder, **variables)
    return folder / "exports" / "language-model" / f"{layer}-{run}"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_every_run_is_converted(demo: Path, tmp_path: Path) -> None:
    sizes, converted, examples, labels = [], 0, 0, 0
    for name in run_names(demo):
        run, batches = Run.load(name, demo), tmp_path / f"{name}-batches"
        assert mxd(["export", name, "--format", "neuronpedia", "--out", str(batches), "--data", str(demo)]) == 0
        read = ask("neuronpedia", "read_batches", batches)
        content = [json.loads(path.read_text())["features"] for path in sorted(batches.glob("batch-*.json"))]
        features = [feature for batch in content for feature in batch]
        sizes += [len(json.dumps(it, ensure_ascii=False, separators=(",", ":")).encode()) for it in features]
        out = convert(batches, run.config.layer, name, tmp_path / name)
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
    add_row("sae-dashboard's `NeuronpediaDashboardBatch`", read["version"], "reads our batches", "written back equal")
    add_row("Neuronpedia's converter", NEURONPEDIA_COMMIT[:7], "converts our batches", summary)
    result = "all examples with an activation, and the labels, are browsed"
    add_row("Neuronpedia's converter", NEURONPEDIA_COMMIT[:7], "wrote exports, which we import", result)
