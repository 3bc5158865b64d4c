"""Graphs of a hundred prompts follow Neuronpedia's schemas, and circuit-tracer's page shows them offline."""

import gzip
import json
import os
import shutil
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

import jsonschema
from playwright.sync_api import Page, Route, sync_playwright

from mxd.backend.database.engine import opened, reading
from mxd.backend.export.attribution_graph import FEATURE, INDEX_FILE, export_circuit
from mxd.backend.settings import Settings
from mxd.trainer.analysis.circuits.checking import check
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run, run_names
from scripts.circuit_tracer_page import make_page, serve
from tests.browser.conftest import BROWSERS, QUIET
from tests.interop.conftest import Table
from tests.interop.environments import CACHE, NEURONPEDIA_COMMIT, Oracles, neuronpedia

PROMPTS, MEASURED = 100, 10
NODES = ".link-graph text.node"
OURS = ("127.0.0.1", "localhost")


def _runs(folder: Path) -> list[Run]:
    return [Run.load(name, folder) for name in run_names(folder)]


def _make_graphs(demo: Path, folder: Path, prompts: int, measured: int) -> Path:
    """Graphs of the first words of texts; the effects of their experts are measured in the first ones."""
    runs = [run for run in _runs(demo) if run.config.method == "mxd"]
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


def test_graphs_follow_the_schema(demo: Path, tmp_path: Path, oracles: Oracles, table: Table) -> None:
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
        table.add(f"Neuronpedia's {name}-schema.json", NEURONPEDIA_COMMIT[:7], checked, f"{errors[name]} errors")
    read = oracles.ask("circuit-tracer", "read_graphs", graphs)
    checked = f"{read['graphs']} graphs, {read['features']:,} feature files"
    table.add("circuit-tracer's front-end models (a fork)", "0.5.0", checked, "all read")
    nodes = [node for path in files["graph"] for node in json.loads(path.read_text())["nodes"]]
    assert sum(errors.values()) == 0
    assert read == {"graphs": PROMPTS, "features": len(files["feature-details"])}
    assert any("measured_effect" in node for node in nodes)


def test_their_page_shows_graphs_without_the_internet(demo: Path, tmp_path: Path, table: Table) -> None:
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
        shown, said, examples = page.locator(NODES).count(), page.inner_text("body"), _examples(page)
        server.shutdown()
    assert (errors, elsewhere) == ([], [])
    assert shown == len(graph["nodes"])
    assert expert["clerp"] in said
    assert examples > 0
    checked = "shows our graphs with no other web site: nodes, labels, effects, examples"
    table.add("circuit-tracer's page (a fork)", "0.5.0", checked, f"{shown} of {shown} nodes")


def _examples(page: Page) -> int:
    page.locator(".feature-example-list .text-wrapper").first.wait_for()
    return page.locator(".feature-example-list .text-wrapper").count()
