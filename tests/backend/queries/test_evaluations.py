"""Evaluations and probes as the dashboard and the report show them."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import plotly.graph_objects as go
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run
from mxd.backend.database.engine import open_database, reading
from mxd.backend.plots.report.page import report
from mxd.backend.queries.evaluations import loss_difference
from mxd.backend.queries.overview import card_figures
from mxd.backend.queries.probes import roc_auc_interval
from mxd.backend.queries.runs import find_run, mixing_of
from mxd.backend.settings import Settings
from mxd.trainer.config import EvaluateConfig, TextConfig
from mxd.trainer.config.analysis import ProbeConfig
from mxd.trainer.evaluation.evaluate import Evaluator, evaluate, evaluate_layer_by_layer, write_evaluation
from mxd.trainer.evaluation.evaluation_metrics import METRICS
from mxd.trainer.evaluation.probing import probe
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import small_world

OF_ALL = ("loss-frontier", "error-frontier", "faithfulness", "routing-frontier", "added-layers", "probing")
OF_A_RUN = ("load", "density-evaluated", "probe-coefficients")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with two seeds of a run, evaluated and probed, and a run that is neither."""
    folder = tmp_path_factory.mktemp("measured")
    world = small_world(folder)
    labels = folder / "labels.jsonl"
    rows = [{"label": kind, "text": f"{kind * 6} {n}"} for kind in ("xy ", "12 ") for n in range(30)]
    labels.write_text("\n".join(json.dumps(row) for row in rows))
    config = EvaluateConfig(text=world.text, tokens=320, resamples=100, prompts=2)
    changes: dict[str, dict[str, Any]] = {
        "first": {},
        "second": {"seed": 1, "data_seed": 0},
        "bare": {"seed": 2},
        "batch": {"method": "batch-topk-mxd"},
    }
    for name, changed in changes.items():
        train_layer(world.config(name, **changed), world.data, world.database, world.language_model)
        if name != "bare":
            one = Run.load(name, world.data)
            session = Evaluator.open(config, world.language_model, NO_CALLBACKS)
            write_evaluation(world.database, evaluate(session, one, seen_text=True), name, config, "0" * 32, "weights")
            probe(one, ProbeConfig(labels=str(labels)), world.language_model, world.database, NO_CALLBACKS)
    train_layer(world.config("above", layer=2), world.data, world.database, world.language_model)
    both = [Run.load(name, world.data) for name in ("first", "above")]
    one_by_one = evaluate_layer_by_layer(Evaluator.open(config, world.language_model, NO_CALLBACKS), both, [0.1, 0.2])
    write_evaluation(world.database, one_by_one, "first", config, "0" * 32, "weights")
    world.database.dispose()
    return world.data


@pytest.fixture
def seen(measured: Path) -> Iterator[TestClient]:
    """A client of a server on it."""
    with TestClient(create_app(Settings(data=measured, frontend=measured / "dist"))) as it:
        yield it


def figure(client: TestClient, name: str, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/api/figures/{name}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("name", OF_ALL + OF_A_RUN)
def test_every_figure_is_valid_and_without_colours(seen: TestClient, name: str) -> None:
    found = figure(seen, name, **({"run": "first"} if name in OF_A_RUN else {}))
    go.Figure(data=found["data"], layout=found["layout"])
    assert "color" not in json.dumps(found)
    assert all("role" in trace["meta"] for trace in found["data"])
    assert found["drawn"] > 0


def test_an_evaluation_has_intervals_and_warnings(seen: TestClient) -> None:
    (found,) = seen.get("/api/runs/first/evaluations").json()["evaluations"]
    metrics = {metric["key"]: metric for metric in found["metrics"]}
    loss_increase = metrics["loss_increase"]
    assert loss_increase["low"] <= loss_increase["value"] <= loss_increase["high"]
    assert metrics["perplexity_ratio"]["high"] == pytest.approx(math.exp(loss_increase["high"]))
    assert metrics["loss_original"]["value"] > 0
    assert found["sequences"] == 20
    greedy = [metric for key, metric in metrics.items() if key.startswith("continuation_")]
    assert [metric["title"] for metric in greedy][:2] == ["Next token", "Next 2 tokens"]
    assert all(metric["low"] <= metric["value"] <= metric["high"] for metric in greedy)
    assert all(metric["low"] < metric["high"] for metric in greedy)
    assert metrics.keys() >= {"dead_share", "normalized_rank", "mixing_variation"}
    baselines = [key for key, metric in metrics.items() if metric["is_baseline"]]
    assert baselines == ["loss_increase_zeroed", "loss_increase_mean_ablated", "loss_increase_frozen"]
    assert seen.get("/api/runs/bare/evaluations").json()["evaluations"] == []
    assert seen.get("/api/runs/nobody/evaluations").status_code == 404


@pytest.mark.parametrize("term", sorted({metric.term for metric in METRICS if metric.term}))
def test_the_glossary_explains_a_metrics_term(term: str) -> None:
    glossary = Path("frontend/src/lib/text/glossary.ts").read_text()
    assert re.search(rf"^  {term}: ", glossary, re.MULTILINE)


def difference(seen: TestClient, one: str, other: str) -> Any:
    """Loss difference of two runs, with its interval."""
    with reading(cast("Any", seen.app).state.services.database) as session:
        found = loss_difference(session, find_run(session, one), find_run(session, other))
    return None if found is None else asdict(found[0])


def test_the_difference_of_two_runs_is_paired_by_sequence(seen: TestClient) -> None:
    increases = {
        run: seen.get(f"/api/runs/{run}/evaluations").json()["evaluations"][0]["metrics"][0]["value"]
        for run in ("first", "second")
    }
    found, reverse = difference(seen, "first", "second"), difference(seen, "second", "first")
    assert found["value"] == pytest.approx(increases["first"] - increases["second"], abs=1e-5)
    assert found["low"] <= found["value"] <= found["high"]
    assert (reverse["low"], reverse["high"]) == pytest.approx((-found["high"], -found["low"]))
    same = difference(seen, "first", "first")
    assert (same["low"], same["high"]) == (0, 0)
    assert difference(seen, "first", "bare") is None


def test_the_verdict_has_every_evaluated_run_of_the_mlp(seen: TestClient) -> None:
    verdict = seen.get("/api/runs/first/evaluations").json()["verdict"]
    assert [run["name"] for run in verdict["runs"]] == ["first", "batch", "second"]
    paired = difference(seen, "first", "batch")
    word = "worse than" if paired["low"] > 0 else "better than" if paired["high"] < 0 else "level with"
    assert f"{word} batch (batch topk MxD)" in verdict["sentence"]
    assert "level with second" in verdict["sentence"] or "than second" in verdict["sentence"]
    assert verdict["notes"] == [
        "Evaluated on training text, so the numbers are too good: first, batch, second.",
    ]
    increase = {run["name"]: next(c for c in run["cells"] if c["key"] == "loss_increase") for run in verdict["runs"]}
    listed = seen.get("/api/runs/second/evaluations").json()["evaluations"][0]["metrics"]
    stored = next(metric for metric in listed if metric["key"] == "loss_increase")
    assert increase["second"]["value"] == stored["value"]
    for metric in verdict["metrics"]:
        cells = {r["name"]: c for r in verdict["runs"] for c in r["cells"] if c["key"] == metric["key"]}
        if metric["best"] is not None:
            leader = cells.pop(metric["best"])
            ends = [(cell["low"], cell["high"]) for cell in cells.values()]
            assert all(
                leader["high"] < low if metric["better"] == "lower" else leader["low"] > high for low, high in ends
            )


def test_a_run_without_evaluations_has_no_verdict(seen: TestClient) -> None:
    assert (
        seen.get("/api/runs/above/evaluations").json()["verdict"]["sentence"]
        == "No run of this layer has been evaluated yet."
    )


def test_a_run_states_its_mixing_and_its_newest_routing_share(seen: TestClient) -> None:
    runs = {run["name"]: run for run in seen.get("/api/runs").json()["runs"]}
    (found,) = seen.get("/api/runs/first/evaluations").json()["evaluations"]
    metrics = {metric["key"]: metric for metric in found["metrics"]}
    assert runs["first"]["routing_share"] == pytest.approx(metrics["routing_share"]["value"])
    assert (runs["first"]["routing_warning"] is not None) == (runs["first"]["strict_routing_share"] < 0.5)
    assert runs["first"]["strict_routing_share"] == pytest.approx(metrics["strict_routing_share"]["value"])
    assert seen.get("/api/runs/first").json()["run"]["routing_share"] == runs["first"]["routing_share"]
    assert (runs["bare"]["routing_share"], runs["bare"]["routing_warning"]) == (None, None)
    assert {run["mixing"] for run in runs.values()} == {"centred"}
    assert metrics["dead_share"]["description"] == "active on none of 320 tokens"


def test_a_run_states_its_newest_results_on_held_out_text(seen: TestClient) -> None:
    runs = {one["name"]: one for one in seen.get("/api/runs").json()["runs"]}
    (found,) = seen.get("/api/runs/first/evaluations").json()["evaluations"]
    metrics = {metric["key"]: metric for metric in found["metrics"]}
    held_out = runs["first"]["held_out"]
    assert (held_out["text"], held_out["tokens"], held_out["seen_text"]) == (found["text"], 320, True)
    assert held_out["normalized_mse"] == pytest.approx(metrics["normalized_mse"]["value"])
    for field, key in (("loss_increase", "loss_increase"), ("loss_recovered", "loss_recovered_zero")):
        assert held_out[field] == {end: pytest.approx(metrics[key][end]) for end in ("value", "low", "high")}
    assert runs["first"]["evaluated_k"] == [runs["first"]["k"]]
    assert (runs["bare"]["held_out"], runs["bare"]["evaluated_k"]) == (None, [])


def test_runs_without_a_stated_mixing_have_that_of_the_paper() -> None:
    kept = {"paper": "paper", "centred": "centred", "auto": "centred"}
    for setting, expected in kept.items():
        assert mixing_of(RunRecord(method="mxd", config={"mixing": setting})) == expected
    assert mixing_of(RunRecord(method="mxd", config={})) == "paper"  # trained before there was a choice
    assert mixing_of(RunRecord(method="mxd", config={"mixing": "auto", "origin": {"format": "paper"}})) == "paper"
    assert mixing_of(RunRecord(method="transcoder", config={"mixing": "auto"})) is None


def test_frontiers_average_seeds_and_separate_settings(seen: TestClient, measured: Path, tmp_path: Path) -> None:
    lines = {trace["name"]: trace for trace in figure(seen, "loss-frontier")["data"]}
    assert lines["mxd, layer 1"]["customdata"][0][0] == "first, second"
    data = shutil.copytree(measured, tmp_path / "copy")
    database = open_database(sqlite_url(data))
    with writing(database) as session:
        run = session.scalars(select(RunRecord).where(RunRecord.name == "second")).one()
        run.config = {**run.config, "init": "random"}
    database.dispose()
    with TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as client:
        names = {trace["name"] for trace in figure(client, "error-frontier")["data"]}
    assert names == {"mxd, layer 1", "mxd, layer 1, init random", "batch-topk-mxd, layer 1"}


def test_a_frontier_averages_seeds_and_needs_an_evaluation(seen: TestClient) -> None:
    def frontier(name: str) -> Any:
        return seen.get(f"/api/runs/{name}/evaluations").raise_for_status().json()["frontier"]

    assert {line["own"]: line["runs"] for line in frontier("first")["lines"]} == {
        True: ["first", "second"],
        False: ["batch"],
    }
    assert frontier("bare") is None


def test_the_card_states_tokens_and_both_shares(measured: Path) -> None:
    database = open_database(sqlite_url(measured))
    with reading(database) as session:
        figures, unmeasured = card_figures(session, "first"), card_figures(session, "bare")
        result = session.scalars(select(EvaluationRecord).where(EvaluationRecord.subject == "first")).one().result
    database.dispose()
    where = "on 320 tokens of the training data"
    assert figures[f"routing share {where}"] == f"{result['routing_share']:.3f}"
    assert figures[f"strict routing share {where}"] == f"{result['strict_routing_share']:.3f}"
    assert "experts active on none of the last 1,536 training tokens" in figures
    assert not any("routing share" in name for name in unmeasured)


def test_runs_without_a_newer_setting_are_seeds_of_the_same_point(measured: Path, tmp_path: Path) -> None:
    data = shutil.copytree(measured, tmp_path / "copy")
    database = open_database(sqlite_url(data))
    later = {"next_token_weight", "parents"}
    with writing(database) as session:
        run = session.scalars(select(RunRecord).where(RunRecord.name == "second")).one()
        assert later <= run.config.keys()
        run.config = {name: value for name, value in run.config.items() if name not in later}
    database.dispose()
    with TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as client:
        lines = {trace["name"]: trace for trace in figure(client, "error-frontier")["data"]}
    assert lines["mxd, layer 1"]["customdata"][0][0] == "first, second"


def test_the_probed_run_is_highlighted_and_each_class_has_a_distribution(seen: TestClient) -> None:
    traces = {trace["name"]: trace for trace in figure(seen, "probing", run="first")["data"]}
    assert {name: trace["meta"]["role"] for name, trace in traces.items()} == {
        "first": "this-run",
        "second": "other",
        "batch": "other",
        "MLP neurons": "reference",
        "random gate": "reference",
    }
    panels = figure(seen, "probe-coefficients", run="first")
    titles = [one["text"] for one in panels["layout"]["annotations"]]
    assert [title.split(",")[0] for title in titles] == ["12 ", "xy "]
    for trace in panels["data"]:
        assert sum(trace["y"]) == pytest.approx(1)


def test_probe_results_are_listed_per_class(seen: TestClient) -> None:
    (found,) = seen.get("/api/runs/first/evaluations").json()["probes"]
    assert (found["level"], [one["name"] for one in found["classes"]]) == ("text", ["12 ", "xy "])
    for one in found["classes"]:
        assert one["top1"]["low"] <= one["top1"]["f1"] <= one["top1"]["high"]
        assert all(0 <= one[kind]["roc_auc"] <= 1 for kind in ("top1", "top5", "neuron", "random_gate"))
    assert sum(one["test_examples"] for one in found["classes"]) == found["test_examples"] < found["examples"]
    assert seen.get("/api/runs/bare/evaluations").json()["probes"] == []


def test_differences_from_baselines_are_means_over_classes(seen: TestClient) -> None:
    (found,) = seen.get("/api/runs/first/evaluations").json()["probes"]
    one = next(each for each in found["differences"] if (each["baseline"], each["metric"]) == ("neuron", "f1"))
    values = [probed["top1"]["f1"] - probed["neuron"]["f1"] for probed in found["classes"]]
    assert one["mean"] == pytest.approx(sum(values) / len(values))
    assert one["classes"] == len(values)
    assert one["lost"] == sum(value < 0 for value in values)
    assert (one["low"] is None) == (len(values) < 5)


def test_an_area_under_the_curve_has_an_interval_even_if_it_is_perfect() -> None:
    # In Hanley and McNeil (1982), an area of 0.893 on 51 abnormal and 58 normal images has a standard error of 0.032.
    low, high = roc_auc_interval(0.893, 51, 58)
    assert low == pytest.approx(0.893 - 1.96 * 0.032, abs=0.025)
    assert high == pytest.approx(0.893 + 1.96 * 0.032, abs=0.025)
    low, high = roc_auc_interval(1.0, 5, 50)
    assert low is not None
    assert 0.5 < low < 0.9
    assert high == pytest.approx(1)
    assert roc_auc_interval(None, 5, 0) == (None, None)


def test_layer_by_layer_results_are_drawn_as_a_line(seen: TestClient) -> None:
    line, alone = figure(seen, "added-layers")["data"]
    assert line["x"] == [1, 2]
    assert line["text"] == ["first", "above"]
    assert "trained separately" in line["name"]
    assert alone["y"] == pytest.approx([0.1, 0.3])


def test_missing_measurements_name_their_command(seen: TestClient) -> None:
    for name in OF_A_RUN:
        found = figure(seen, name, run="bare")
        assert (found["data"], found["total"]) == ([], 0)
        assert "has not been" in found["title"]


def test_the_report_is_a_complete_page(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out" / "report.html"
    assert run(["report", "--data", str(measured), "--out", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == target.stat().st_size
    content = target.read_text()
    assert content.count("Plotly.newPlot(") >= len(OF_ALL) + 4
    runs = content.count("<details>")
    assert content.count("<p>Sample: ") == content.count("Plotly.newPlot(") + runs
    assert "Sample: 3 evaluations, each on 320 tokens in 20 sequences." in content
    assert "Sample: 40 experts on 320 tokens in 20 sequences of text.jsonl." in content
    assert re.search(r"Sample: labels.jsonl: \d+ test texts of 60 labelled texts in 2 classes\.", content)
    assert "Sample: 1 set of runs, each on 320 tokens." in content
    assert "share of 2 prompts with the same greedy continuation" in content
    assert 'src="http' not in content
    assert "mxd train" in content
    assert "mxd evaluate second" in content
    assert "mxd probe first" in content
    assert "--data-seed 0" in content
    assert re.search(r"mxd evaluate batch .*--always-on 0.9 .*--seen-text", content)
    assert re.search(r"mxd evaluate first above .*--layer-by-layer", content)
    assert "95 % over seeds" in content
    assert "layer by layer: " not in content.split("<h2>", 2)[1]
    assert run(["report", "--data", str(tmp_path / "empty")]) == 2
    assert "No run has been evaluated yet" in capsys.readouterr().err


def test_the_report_escapes_html_in_names(measured: Path, tmp_path: Path) -> None:
    script = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    database = open_database(sqlite_url(shutil.copytree(measured, tmp_path / "copy")))
    with writing(database) as session:
        for record in session.scalars(select(EvaluationRecord)):
            record.text = script
        for run in session.scalars(select(RunRecord)):
            run.config = {**run.config, "language_model": script}
    with reading(database) as session:
        content = report(session)
    database.dispose()
    assert "<script>alert(1)" not in content
    assert "<img src=x" not in content
    assert "alert(1)" in content


def test_evaluations_at_several_k_are_a_separate_line(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shutil.copytree(measured, tmp_path / "copy")
    text = TextConfig(dataset=str(measured.parent / "text.jsonl"), context_length=16)
    config = EvaluateConfig(text=text, tokens=320, resamples=100, prompts=0, k=2)
    database = open_database(sqlite_url(data))
    session = Evaluator.open(config, tiny_language_model(), NO_CALLBACKS)
    measured_at_2 = evaluate(session, Run.load("first", data), seen_text=True)
    write_evaluation(database, measured_at_2, "first", config, "0" * 32, "weights")
    database.dispose()
    with TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as client:
        lines = {trace["name"]: trace for trace in figure(client, "loss-frontier")["data"]}
        rows = figure(client, "faithfulness")["data"][0]["y"]
        (told,) = client.get("/api/runs/first/evaluations").json()["evaluations"]
        frontier = client.get("/api/runs/first/evaluations").json()["frontier"]
    by_name = {line["name"]: line for line in frontier["lines"]}
    assert {name: line["own"] for name, line in by_name.items()} == {"first": True, "second": False, "batch": False}
    assert [(point["k"], point["trained_k"]) for point in by_name["first"]["points"]] == [(2, 4), (4, 4)]
    (second,) = by_name["second"]["points"]
    difference = by_name["first"]["points"][1]["loss_increase"]["value"] - second["loss_increase"]["value"]
    assert second["difference"]["value"] == pytest.approx(difference, abs=1e-5)
    assert sorted(lines) == ["batch-topk-mxd, layer 1", "first at several K", "mxd, layer 1"]
    assert lines["first at several K"]["x"] == [2, 4]
    assert lines["mxd, layer 1"]["customdata"][0][0] == "second"
    assert sorted(rows) == ["batch", "first", "first at K 2", "second"]
    assert {metric["key"]: metric["value"] for metric in told["metrics"]}["l0"] > 2
    target = tmp_path / "report.html"
    assert run(["report", "--data", str(data), "--out", str(target)]) == 0
    capsys.readouterr()
    content = target.read_text()
    assert "first at K 2" in content
    assert re.search(r"mxd evaluate first .*--k 2", content)


def test_partial_replacement_results_of_the_best_run_are_shown(measured: Path, tmp_path: Path) -> None:
    data = shutil.copytree(measured, tmp_path / "copy")
    database = open_database(sqlite_url(data))
    shares = {"first": 0.8, "batch": 0.4}

    def drawn() -> dict[str, Any]:
        with TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as client:
            return figure(client, "routing-frontier")

    with writing(database) as session:
        for record in session.scalars(select(EvaluationRecord)).all():
            if record.subject not in shares:
                session.delete(record)
                continue
            share = dict.fromkeys(("value", "low", "high"), shares[record.subject])
            intervals = record.result["intervals"] | {"routing_share": share}
            loss = dict.fromkeys(("value", "low", "high"), 0.02)
            record.result = record.result | {"loss_increase": loss, "intervals": intervals}

    def set_layer(layer: int) -> None:
        with writing(database) as session:
            batch = session.scalars(select(RunRecord).where(RunRecord.name == "batch")).one()
            batch.config = {**batch.config, "layer": layer}

    set_layer(2)
    assert all(trace["meta"]["role"] == "method" for trace in drawn()["data"]), "the runs replace different MLPs"
    set_layer(1)
    database.dispose()
    reference = (both := drawn())["data"][0]
    assert reference["name"] == "mxd, layer 1, K 4, with part of the MLP left in place"
    assert both["total"] == 2
    assert reference["x"][-1] == pytest.approx(0.8)
    assert reference["y"] == pytest.approx([0.02 / 0.8 * share for share in reference["x"]])
