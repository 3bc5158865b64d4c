"""Evaluations, probes and benchmarks as figures and the report show them, and the commands that repeat them."""

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import plotly.graph_objects as go
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from mxd.backend.api.app import create_app
from mxd.backend.cli.commands.evaluate import AblateCommand, EvaluateSteeringCommand
from mxd.backend.cli.commands.share import ImportCommand
from mxd.backend.cli.commands.train import FinetuneCommand, TrainCommand
from mxd.backend.cli.main import run
from mxd.backend.cli.parser import command_from
from mxd.backend.database.engine import opened, reading
from mxd.backend.plots import figures
from mxd.backend.plots.report import report
from mxd.backend.queries.commands import commands, fit, train_again_command
from mxd.backend.queries.evaluations import loss_differences
from mxd.backend.queries.glossary import glossary
from mxd.backend.queries.outcomes import COMPARED, MEANS_OVER_EXPERTS, RECOVERED, Compared, Evidence, questions
from mxd.backend.queries.outcomes import _of_losses as loss_sentence
from mxd.backend.queries.probes import roc_auc_interval
from mxd.backend.queries.report import _sentence, _table
from mxd.backend.queries.runs import find_run
from mxd.backend.settings import Settings
from mxd.trainer.analysis.ablation import build_ablations
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config.analysis import (
    AblationConfig,
    EvaluateConfig,
    IndexConfig,
    ProbeConfig,
    SteeringEvaluationConfig,
)
from mxd.trainer.config.base import RETIRED
from mxd.trainer.config.training import OptimizerConfig, Origin, RegularizationConfig, TextConfig, TrainConfig
from mxd.trainer.evaluation.evaluate import Evaluator, evaluate, evaluate_layer_by_layer, write_evaluation
from mxd.trainer.evaluation.evaluation_metrics import METRICS
from mxd.trainer.evaluation.probing import probe
from mxd.trainer.evaluation.steering import evaluate_steering
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    EvaluationRecord,
    IndexRecord,
    MeasurementRecord,
    ProbeRecord,
    RunRecord,
)
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.databases import ACTIVE, steering_strength, write_benchmark
from tests.helpers.runs import World, small_world, tiny_language_model, train_layer

OF_A_RUN = ("loss-frontier", "load", "density-evaluated", "probe-activations")


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


@pytest.fixture(scope="module")
def seen(measured: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(data=measured, frontend=measured / "dist"))) as it:
        yield it


class Copy(NamedTuple):
    """A copy of the data folder that a test may write to, and a client of a server on it."""

    data: Path
    database: Engine
    client: TestClient


@pytest.fixture
def copy(measured: Path, tmp_path: Path) -> Iterator[Copy]:
    data = shutil.copytree(measured, tmp_path / "copy")
    with (
        opened(sqlite_url(data)) as database,
        TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as client,
    ):
        yield Copy(data, database, client)


def figure(client: TestClient, name: str, **query: Any) -> dict[str, Any]:
    """A figure, which is valid and leaves its colours to the page."""
    found: dict[str, Any] = client.get(f"/api/figures/{name}", params=query).raise_for_status().json()
    go.Figure(data=found["data"], layout=found["layout"])
    assert "color" not in json.dumps(found)
    assert "template" not in found["layout"]
    assert all("role" in trace["meta"] for trace in found["data"])
    return found


def chapter(client: TestClient, run: str, key: str) -> list[dict[str, Any]]:
    chapters = client.get(f"/api/runs/{run}/report").raise_for_status().json()["chapters"]
    return next(one["sections"] for one in chapters if one["key"] == key)


def rows(client: TestClient, run: str, key: str, section: int = 0) -> dict[str, dict[str, Any]]:
    """Rows of the first table of a section of a chapter, by key."""
    return {row["key"]: row for row in chapter(client, run, key)[section]["tables"][0]["rows"]}


@pytest.mark.parametrize("name", (*OF_A_RUN, "added-layers"))
def test_every_figure_is_valid_and_has_points(seen: TestClient, name: str) -> None:
    assert figure(seen, name, **({"run": "first"} if name in OF_A_RUN else {}))["drawn"] > 0


def test_an_evaluation_has_intervals_and_warnings(seen: TestClient) -> None:
    metrics = {**rows(seen, "first", "faithfulness"), **rows(seen, "first", "health")}
    numbers = {key: metric["cells"][0] for key, metric in metrics.items()}
    loss_increase = numbers["loss_increase"]
    assert loss_increase["low"] <= loss_increase["value"] <= loss_increase["high"]
    assert numbers["perplexity_ratio"]["high"] == pytest.approx(math.exp(loss_increase["high"]))
    assert numbers["loss_original"]["value"] > 0
    assert numbers["loss_original"]["interval"] == ""
    assert "320 tokens in 20 sequences" in chapter(seen, "first", "faithfulness")[0]["intro"][0]
    greedy = [key for key in metrics if key.startswith("continuation_")]
    assert [metrics[key]["title"] for key in greedy][:2] == ["Next token", "Next 2 tokens"]
    assert all(numbers[key]["low"] <= numbers[key]["value"] <= numbers[key]["high"] for key in greedy)
    assert all(numbers[key]["low"] < numbers[key]["high"] for key in greedy)
    assert metrics.keys() >= {"dead_share", "normalized_rank", "mixing_variation"}
    baselines = [key for key, metric in metrics.items() if metric["is_baseline"]]
    assert baselines == ["loss_increase_zeroed", "loss_increase_mean_ablated", "loss_increase_frozen"]
    for key in ("verdict", "health", "faithfulness", "frontier"):
        missing = next(one for one in chapter(seen, "bare", key) if one["figure"] is None)
        assert "mxd evaluate bare --dataset" in missing["commands"][0]


def test_metrics_are_beside_those_of_other_runs_and_dead_beside_inactive(copy: Copy) -> None:
    with writing(copy.database) as session:
        first = find_run(session, "first")
        counts = {"tokens": 9000, "active_experts": first.num_experts - 2, "context_length": 16, "examples": 0}
        index = {"text": "held out", "seed": 0, "normalized_mse": 0.5, "created_at": first.started_at}
        session.add(IndexRecord(run_id=first.id, **counts, **index))
        share = f"{2 / first.num_experts:.1%}".replace("%", "\N{NO-BREAK SPACE}%")
    inactive = {
        name: rows(copy.client, name, "health")["dead_share"]["cells"][0] for name in ("first", "second", "batch")
    }
    own, *others = (float(cell["text"][:-2]) for cell in inactive.values())
    low, high = sorted(others)
    assert inactive["first"]["note"][:-2] == f"others {low}" + f" to {high}" * (low != high)
    (section,) = chapter(copy.client, "first", "health")
    assert "not measured yet: run `mxd ablate first`" in section["intro"][2]
    with writing(copy.database) as session:
        numbers = dict.fromkeys(("kl_ablated", "kl_amplified", "kl_random_expert", "kl_random_direction"), 0.1)
        rest = {"examples": 1, "random_expert": 0, "output_share": 0.1, "promoted": [], "suppressed": []}
        run_id = find_run(session, "first").id
        for expert, dependence in enumerate((0.02, 0.034, 0.5)):
            measures = {"loss_increase": None, "input_dependence": dependence, **numbers, **rest}
            session.add(AblationRecord(run_id=run_id, expert=expert, **measures))
    (section,) = chapter(copy.client, "first", "health")
    assert "of 3 measured experts is 3.4\N{NO-BREAK SPACE}% (2.0 to 50.0\N{NO-BREAK SPACE}%)" in section["intro"][2]
    with writing(copy.database) as session:
        record = session.scalars(select(EvaluationRecord).filter_by(subject="first")).one()
        above = {"value": 1.234, "low": 1.176, "high": 1.297}
        record.result = {
            **record.result, "intervals": {**record.result["intervals"], "strict_routing_share": above},
            "strict_routing_share": 1.234,
        }  # fmt: skip
    beyond = rows(copy.client, "first", "metrics")["strict_routing_share"]["cells"][0]
    assert beyond["text"] == "123.4\N{NO-BREAK SPACE}%*"
    assert [note[0] for note in chapter(copy.client, "first", "metrics")[0]["notes"]] == ["L", "*", "B"]
    assert "Others: 2 runs of layer 1 on the same text." in section["intro"][0]
    assert f"({own}\N{NO-BREAK SPACE}%) are inactive: on none of these 320 tokens" in section["intro"][1]
    assert section["intro"][1].endswith(f" 2 ({share}) are dead: active on none of 9,000 indexed tokens.")


def difference(seen: TestClient, one: str, other: str) -> Any:
    with reading(cast("Any", seen.app).state.services.database) as session:
        found = loss_differences(session, find_run(session, one), [find_run(session, other)]).get(other)
    return None if found is None else asdict(found)


def test_the_difference_of_two_runs_is_paired_by_sequence(seen: TestClient) -> None:
    increases = {
        run: rows(seen, run, "faithfulness")["loss_increase"]["cells"][0]["value"] for run in ("first", "second")
    }
    found, reverse = difference(seen, "first", "second"), difference(seen, "second", "first")
    assert found["value"] == pytest.approx(increases["first"] - increases["second"], abs=1e-5)
    assert found["low"] <= found["value"] <= found["high"]
    assert (reverse["low"], reverse["high"]) == pytest.approx((-found["high"], -found["low"]))
    same = difference(seen, "first", "first")
    assert (same["low"], same["high"]) == (0, 0)
    assert difference(seen, "first", "bare") is None


def test_runs_state_paired_differences_of_losses_also_where_intervals_overlap(copy: Copy) -> None:
    with writing(copy.database) as session:
        records = {run: session.scalar(select(EvaluationRecord).filter_by(subject=run)) for run in ("batch", "second")}
        first = session.scalars(select(EvaluationRecord).filter_by(subject="first")).one()
        for record, added in zip(records.values(), (0.2, 0.3), strict=True):
            assert record is not None
            increases = (np.frombuffer(first.sequences, "<f4") + np.float32(added)).astype("<f4")
            record.sequences = increases.tobytes()
    listed = copy.client.get("/api/runs").json()
    intervals = [run["held_out"]["loss_recovered"] for run in listed["runs"] if run["held_out"]]
    assert max(one["low"] for one in intervals) < min(one["high"] for one in intervals)
    of_batch = "0.2000 nats above first’s and 0.1000 nats below second’s"
    assert listed["losses"] == [f"In layer 1, the batch topk MxD’s loss is {of_batch} (paired by sequence, 95 %)."]
    (verdict, *_) = chapter(copy.client, "batch", "verdict")
    assert verdict["verdict"] == f"batch’s loss is {of_batch} (paired by sequence, 95 %)."
    with writing(copy.database) as session:
        session.execute(delete(EvaluationRecord).where(EvaluationRecord.subject != "first"))
    assert copy.client.get("/api/runs").json()["losses"] == []


def test_the_verdict_has_every_evaluated_run_of_the_mlp(seen: TestClient) -> None:
    (section,), (metrics,) = (chapter(seen, "first", name) for name in ("verdict", "metrics"))
    (table,) = metrics["tables"]
    assert [column["key"] for column in table["columns"]] == ["first", "batch", "second"]
    recovered, *_ = section["notes"]
    assert re.match(r"first recovers [−\d.]+.% .*of the loss that mean-ablating the MLP costs\.$", recovered)
    assert table["axis"] == "row" and table["rows"][0]["key"] == "loss_recovered_mean"
    (questioned,) = section["tables"]
    assert [column["title"] for column in questioned["columns"]] == ["Batch topk MxD", "second"]
    assert questioned["corner"] == "MxD minus the other run"
    for cell, other in zip(questioned["rows"][0]["cells"], ("batch", "second"), strict=True):
        paired = difference(seen, "first", other)
        assert [cell[end] for end in ("value", "low", "high")] == [paired[end] for end in ("value", "low", "high")]
        outcome = "lose" if paired["low"] > 0 else "win" if paired["high"] < 0 else "tie"
        assert cell["outcome"] == outcome
    outcomes = [[row["cells"][i]["outcome"] for row in questioned["rows"] if row["cells"][i]] for i in range(2)]
    for found, column in zip(outcomes, questioned["columns"], strict=True):
        won, lost, tied = (found.count(outcome) for outcome in ("win", "lose", "tie"))
        assert column["detail"] == f"{won} won, {lost} lost, {tied} tied"
    assert section["intro"] == ["Evaluated on training text, so the numbers are too good: first, batch, second."]
    second = rows(seen, "first", "metrics")["loss_increase"]["cells"][2]
    assert second["value"] == rows(seen, "second", "faithfulness")["loss_increase"]["cells"][0]["value"]
    for metric in table["rows"]:
        leaders = [cell for cell in metric["cells"] if cell and cell["is_best"]]
        assert len(leaders) <= 1
        for leader in leaders:
            others = [cell for cell in metric["cells"] if cell and cell is not leader]
            below = all(leader["high"] < cell["low"] for cell in others)
            above = all(leader["low"] > cell["high"] for cell in others)
            assert below if "lower is better" in metric["detail"] else above


def test_a_run_states_its_mixing_and_its_newest_results(seen: TestClient) -> None:
    runs = {run["name"]: run for run in seen.get("/api/runs").json()["runs"]}
    metrics = {key: row["cells"][0] for key, row in rows(seen, "first", "faithfulness").items()}
    first, bare = runs["first"], runs["bare"]
    for share in ("routing_share", "strict_routing_share"):
        assert first[share] == pytest.approx(metrics[share]["value"])
    assert (first["routing_warning"] is not None) == (first["strict_routing_share"] < 0.5)
    assert seen.get("/api/runs/first").json()["run"]["routing_share"] == first["routing_share"]
    assert {run["mixing"] for run in runs.values()} == {"centred"}
    listed = seen.get("/api/runs").json()
    (table,) = chapter(seen, "first", "metrics")[0]["tables"]
    columns = {"held_out_mse": "normalized_mse", "loss_recovered": "loss_recovered_mean", "dead": "dead_in_index"}
    for own, key in columns.items():  # the same rule as the page Evaluate
        cells = [cell for row in table["rows"] if row["key"] == key for cell in row["cells"]]
        leaders = [cell is not None and cell["is_best"] for cell in cells]
        assert leaders == [own in listed["best"].get(column["key"], ()) for column in table["columns"][: len(cells)]]
    assert listed["notes"][0].startswith("Held-out results: 320 tokens of text.jsonl;")
    held_out = first["held_out"]
    assert (Path(held_out["text"]).name, held_out["tokens"], held_out["seen_text"]) == ("text.jsonl", 320, True)
    assert held_out["normalized_mse"] == pytest.approx(metrics["normalized_mse"]["value"])
    for field, key in (("loss_increase", "loss_increase"), ("loss_recovered", "loss_recovered_mean")):
        assert held_out[field] == {end: pytest.approx(metrics[key][end]) for end in ("value", "low", "high")}
    assert first["evaluated_k"] == [first["k"]]
    assert [bare[name] for name in ("routing_share", "routing_warning", "held_out")] == [None] * 3
    assert bare["evaluated_k"] == []


def test_frontiers_average_seeds_and_separate_settings(seen: TestClient, copy: Copy) -> None:
    own, other = rows(seen, "first", "frontier").values()
    assert (own["title"], other["title"]) == ("mxd, layer 1, K 4", "batch, K 4")
    assert "2 seeds" in own["detail"]
    assert own["cells"][1] is None
    assert other["cells"][1]["low"] <= other["cells"][1]["value"] <= other["cells"][1]["high"]
    lines = {trace["name"]: trace["meta"]["role"] for trace in figure(seen, "loss-frontier", run="batch")["data"]}
    assert lines == {"batch": "this-run", "mxd, layer 1": "other"}
    with writing(copy.database) as session:
        run = session.scalars(select(RunRecord).where(RunRecord.name == "second")).one()
        run.config = {**run.config, "init": "random"}
    names = {trace["name"] for trace in figure(copy.client, "loss-frontier", run="first")["data"]}
    assert names == {"first", "second", "batch"}


def test_probe_results_are_listed_per_class_and_compared_with_baselines(seen: TestClient) -> None:
    differences, scores, _ = chapter(seen, "first", "probing")
    assert [table["key"] for table in scores["tables"]] == ["roc_auc", "balanced_accuracy", "f1"]
    for table in scores["tables"]:
        assert [row["title"] for row in table["rows"]] == ["12 ", "xy "]
        for cell in (cell for row in table["rows"] for cell in row["cells"]):
            assert 0 <= cell["value"] <= 1
            assert (cell["low"] is None) == (table["key"] == "balanced_accuracy")
            assert cell["low"] is None or cell["low"] <= cell["value"] <= cell["high"]
    found = next(row for row in differences["tables"][0]["rows"] if row["key"] == "neurons")["cells"][2]
    values = [row["cells"][0]["value"] - row["cells"][2]["value"] for row in scores["tables"][2]["rows"]]
    assert found["value"] == pytest.approx(sum(values) / len(values))
    assert found["note"] == f"baseline higher in {sum(value < 0 for value in values)} of {len(values)}"
    assert (found["low"] is None) == (len(values) < 5)
    panels = figure(seen, "probe-activations", run="first")
    assert [one["text"].split(",")[0] for one in panels["layout"]["annotations"]] == ["12 ", "xy "]
    assert [sum(trace["y"]) for trace in panels["data"]] == pytest.approx([1] * len(panels["data"]))
    (missing,) = chapter(seen, "bare", "probing")
    assert "mxd probe bare --labels FILE.jsonl" in missing["commands"]


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


def test_the_report_is_a_complete_page(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out" / "report.html"
    assert run(["report", "--data", str(measured), "--out", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == target.stat().st_size
    content = target.read_text()
    # Each of the three runs has its own figures; the layer-by-layer one of all runs is drawn once.
    assert content.count("Plotly.newPlot(") == 3 * len(OF_A_RUN) + 1
    assert content.count("Evaluated on training text") == 3
    assert 'src="http' not in content
    for shown in (
        "320 tokens in 20 sequences of text.jsonl",
        "60 texts of labels.jsonl in 2 classes",
        "share of 2 prompts with the same greedy continuation",
        "mxd train .*--data-seed 0",
        "mxd evaluate batch .*--always-on 0.9 .*--seen-text",
        "mxd evaluate first above .*--layer-by-layer",
        "mxd probe first",
    ):
        assert re.search(shown, content), shown
    assert run(["report", "--data", str(tmp_path / "empty")]) == 2
    assert "No run has been evaluated yet" in capsys.readouterr().err


def test_the_report_escapes_html_in_names_and_classes(copy: Copy) -> None:
    script = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    link, shown = '<a href="https://example.org">click</a>', '&lt;a href="https://example.org"&gt;click&lt;/a&gt;'
    with writing(copy.database) as session:
        for record in session.scalars(select(EvaluationRecord)):
            record.text = script
        for run in session.scalars(select(RunRecord)):
            run.config = {**run.config, "language_model": script}
        for probed in session.scalars(select(ProbeRecord)):
            classes = json.dumps(probed.result["kinds"])
            assert '"xy ":' in classes
            probed.result = probed.result | {"kinds": json.loads(classes.replace('"xy ":', f"{json.dumps(link)}:"))}
    with reading(copy.database) as session:
        content = report(session, copy.data)
    assert "<script>alert(1)" not in content
    assert "\\u003ca href" not in content, "plotly.js would draw a link"
    assert json.dumps(shown)[1:20] in content
    assert "<img src=x" not in content
    assert "alert(1)" in content


def test_evaluations_at_several_k_are_a_separate_line(copy: Copy, measured: Path) -> None:
    text = TextConfig(dataset=str(measured.parent / "text.jsonl"), context_length=16)
    config = EvaluateConfig(text=text, tokens=320, resamples=100, prompts=0, k=2)
    session = Evaluator.open(config, tiny_language_model(), NO_CALLBACKS)
    at_2 = evaluate(session, Run.load("first", copy.data), seen_text=True)
    write_evaluation(copy.database, at_2, "first", config, "0" * 32, "weights")
    lines = {trace["name"]: trace for trace in figure(copy.client, "loss-frontier", run="first")["data"]}
    points = rows(copy.client, "first", "frontier")
    assert list(points) == ["first, K 2 (trained at 4)", "first, K 4", "batch, K 4", "second, K 4"]
    own, second = points["first, K 4"]["cells"], points["second, K 4"]["cells"]
    assert second[1]["value"] == pytest.approx(own[0]["value"] - second[0]["value"], abs=1e-5)
    # The best constant mixing does not depend on K, so the strict share is stated once.
    assert points["first, K 2 (trained at 4)"]["cells"][4] is None
    assert own[4]["value"] == pytest.approx(cast("Any", at_2.result).strict_routing_share)
    assert lines["first"]["customdata"] == [["first", 2], ["first", 4]]
    beside = sorted(line["x"][-1] for line in lines.values())
    assert beside[0] < beside[1] < beside[2] and beside == pytest.approx([4] * 3, rel=0.01)
    assert lines["first"]["marker"]["symbol"] == ["circle-open", "circle"]
    assert rows(copy.client, "first", "faithfulness")["l0"]["cells"][0]["value"] > 2
    with reading(copy.database) as reader:
        content = report(reader, copy.data)
    assert "first at K 2" in content
    assert re.search(r"mxd evaluate first .*--k 2", content)


@pytest.mark.parametrize("damaged", ['{"scores":', "[1, 2]", "{}"])
def test_the_benchmark_is_read_at_each_request(own_client: TestClient, tmp_path: Path, damaged: str) -> None:
    def sections() -> list[dict[str, Any]]:
        return chapter(own_client, "first", "benchmark")

    assert sections()[0]["title"] == "No benchmark yet"
    write_benchmark(tmp_path, "ours")
    differences, scores = sections()
    assert scores["tables"][0]["rows"][0]["key"] == "ours"
    assert "higher\N{NO-BREAK SPACE}on" in differences["tables"][0]["rows"][0]["cells"][0]["note"]
    (tmp_path / "benchmark" / "summary.json").write_text(damaged)
    (section,) = sections()
    assert re.search(r"is not a summary of a benchmark: .*\. Run 'mxd benchmark' again", section["verdict"])


@pytest.mark.parametrize(("low", "part"), [(0.7, "most"), (0.4, "about half"), (0.1, "less than half")])
def test_the_only_run_of_a_layer_is_judged_and_drawn(low: float, part: str) -> None:
    record = RunRecord(name="alone", method="mxd", layer=1, k=4, parameters=10, trained_tokens=10)
    alone = [Compared(record, {}, {RECOVERED: {"value": low + 0.1, "low": low, "high": low + 0.2}})]
    said = _sentence(record, alone, "")
    assert said.startswith(f"alone replaces {part} of what the MLP does: it recovers")
    assert "the only evaluated run of layer 1" in said
    assert _table(alone).axis == "row"


def test_a_difference_is_won_on_its_better_side_and_tied_at_zero() -> None:
    asked = {question.key: question for question in questions(None)}
    loss, labels = asked["loss"], asked["label_score"]
    for low, high, of_loss, of_labels in ((-2, -1, "win", "lose"), (1, 2, "lose", "win"), (-1, 1, "tie", "tie")):
        found = Interval((low + high) / 2, low, high)
        assert (loss.outcome(found), labels.outcome(found)) == (of_loss, of_labels)
        side = {
            "win": " is ahead: its loss is 1.5000 nats below",
            "lose": " is behind: its loss is 1.5000 nats above",
            "tie": "’s loss is level with",
        }[of_loss]
        said = loss_sentence("own", {"other": found}, {"other": "transcoder"})
        assert said == f"own{side} the transcoder’s (paired by sequence, 95 %)."


def test_every_metric_with_a_better_end_and_an_interval_is_counted() -> None:
    record = RunRecord(name="own", method="mxd", layer=1, k=4)
    other = RunRecord(name="other", method="transcoder", layer=1, k=4)
    compared = [metric for metric in COMPARED if metric.better and metric.key not in (RECOVERED, "loss_increase")]
    of_experts = {"label_score", "token_entropy", "dead_in_index"}
    assert {"kl", "variance_explained", "normalized_mse"} | of_experts == {each.key for each in compared}
    measured = {metric.key: {"value": 1.0, "low": 0.7, "high": 1.4} for metric in compared}
    worse = {metric.key: {"value": 3.0, "low": 2.6, "high": 3.3} for metric in compared}
    evidence = Evidence(cast("Any", None), Compared(record, {}, measured), [Compared(other, {}, worse)], None)
    for question in questions(None):
        if question.key in measured:
            found = question.differences(evidence)["other"]
            assert (found.value, found.low, found.high) == pytest.approx((-2.0, -2 - 0.18**0.5, -2 + 0.32**0.5))
            assert question.outcome(found) == ("win" if question.better == "lower" else "lose")


CONFIG = TrainConfig(
    name="a-run", language_model="some folder/model", language_model_dtype="bfloat16", layer=3,
    text=TextConfig(dataset="my text.jsonl", column="body", context_length=64, on_short_text="repeat"),
    tokens=4096, method="molt", num_experts=512, k=8, rank=5, init="random", seed=1, data_seed=0,
    optimizer=OptimizerConfig(
        learning_rate=2e-3, warmup_ratio=0.1, decay_ratio=0.2, batch_tokens=512, buffer_tokens=2048
    ),
    regularization=RegularizationConfig(k_spread=0.5, load_balance_weight=0.01),
)  # fmt: skip


def typed(config: TrainConfig) -> Any:
    # Records of earlier versions have a gate.
    return command_from(shlex.split(fit(config.model_dump(mode="json") | RETIRED))[1:])


@pytest.mark.parametrize("changed", [{}, {"num_experts": None, "data_seed": None}, {"min_k": 2, "rank": None}])
def test_the_training_command_has_all_settings(changed: dict[str, Any], tmp_path: Path) -> None:
    config = CONFIG.model_copy(update=changed)
    command = typed(config)
    assert isinstance(command, TrainCommand)
    assert command.configs(tmp_path) == [config]


def test_the_command_that_trains_again_states_only_what_differs_from_the_defaults(tmp_path: Path) -> None:
    again = CONFIG.model_copy(update={"name": "a-run-again", "seed": 101})
    command = train_again_command(CONFIG.model_dump(mode="json"))
    assert command is not None
    typed_again = command_from(shlex.split(command)[1:])
    assert isinstance(typed_again, TrainCommand)
    assert typed_again.configs(tmp_path) == [again]
    plain = TrainConfig(
        name="b", language_model="lm", layer=0, text=TextConfig(dataset="t.txt"), tokens=1_000_000, num_experts=64
    )
    assert train_again_command(plain.model_dump(mode="json")) == (
        "mxd train lm --name b-again --layer 0 --dataset t.txt --tokens 1000000 --num-experts 64 "
        "--learning-rate 0.003 --batch-tokens 512 --seed 100"
    )
    assert train_again_command(CONFIG.model_copy(update={"parents": ("a", "b")}).model_dump(mode="json")) is None


def test_fine_tuned_and_imported_runs_have_their_own_commands() -> None:
    tuned = typed(CONFIG.model_copy(update={"parents": ("first", "second")}))
    assert isinstance(tuned, FinetuneCommand)
    assert (tuned.names, tuned.flags["seed"]) == (["first", "second"], "0")
    origin = Origin(format="sparsify", source="owner/name", part="layers.3", sha256="0" * 64)
    imported = typed(CONFIG.model_copy(update={"origin": origin}))
    assert isinstance(imported, ImportCommand)
    assert [imported.flags[name] for name in ("source", "part", "layer")] == ["owner/name", "layers.3", "3"]


def commands_of(world: World, kind: type[Any]) -> list[Any]:
    """Settings of the commands of one kind, as the command line reads them."""
    with Session(world.database) as session:
        typed_lines = [command_from(shlex.split(line)[1:]) for line in commands(session)]
    return [line.config for line in typed_lines if isinstance(line, kind)]


def test_commands_of_expert_measurements_have_their_settings(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train_layer(world.config(), world.data, world.database, world.language_model)
    run = Run.load("small", world.data)
    index_text = IndexConfig(text=world.text, tokens=320)
    build_index(run, index_text, world.language_model, world.database)
    influence = AblationConfig(examples_per_bin=2, seed=3)
    steering = SteeringEvaluationConfig(
        experts=2, strengths=(1.5, 4.0), prompts=("the fox", "a 'red' dog"), samples=2, max_tokens=3, seed=5
    )
    build_ablations(run, influence, world.language_model, world.database)
    assert commands_of(world, AblateCommand) == [influence]
    first, second = (influence.model_copy(update={"experts": (expert,)}) for expert in sorted(run.units)[:2])
    build_ablations(run, first, world.language_model, world.database)
    evaluate_steering(run, steering, world.language_model, world.database)
    assert commands_of(world, AblateCommand) == [influence]  # the other experts keep their measurements
    assert commands_of(world, EvaluateSteeringCommand) == [steering]
    build_index(run, index_text, world.language_model, world.database)
    for chosen in (first, second):
        build_ablations(run, chosen, world.language_model, world.database)
    both = influence.model_copy(update={"experts": (*first.experts, *second.experts)})
    assert commands_of(world, AblateCommand) == [both]
    world.database.dispose()


def test_figures_show_training_and_densities(client: TestClient) -> None:
    histogram, steering = (figure(client, name, run="first") for name in ("density-histogram", "steering"))
    training = figure(client, "training", run="first")
    raw, averages, end = training["data"]
    assert raw["y"] == [0.2, 0.1, pytest.approx(10 / 150)]
    assert averages["y"] == raw["y"], "fewer than ten points are not averaged"
    assert end["text"] == ["0.0667", ""]
    assert training["layout"]["yaxis"]["type"] == "log"
    assert figure(client, "training", run="first", curve="stable_rank")["drawn"] == 0
    both = figure(client, "training", run="first", compare="second", curve="l0")["data"]
    assert [trace["meta"]["role"] for trace in both] == ["other", "raw", "this-run", "other", "this-run"]
    assert both[-1]["text"][1] == "first" and both[-2]["text"][1] == "second"
    sides = {both[-1]["textposition"][0], both[-2]["textposition"][0]}
    assert sides == {"top right", "bottom right"}, "labels do not overlap"
    assert sum(histogram["data"][0]["y"]) == ACTIVE
    assert histogram["data"][0]["customdata"][-1][1] == 100, "densities are in percent"
    assert histogram["data"][1]["text"] == ["", "K/N"]
    assert steering["total"] == 0
    assert "mxd evaluate-steering first" in steering["title"]


def test_a_scatter_plot_is_sampled_and_follows_labels(
    own: Engine, own_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = figure(own_client, "density-activation", run="first")
    own_client.patch("/api/runs/first/experts/3", json={"label": "foxes"})
    after = figure(own_client, "density-activation", run="first")
    assert [3, None, None] in before["data"][0]["customdata"]
    assert [3, "foxes", None] in after["data"][0]["customdata"]
    assert (after["drawn"], after["total"]) == (ACTIVE, ACTIVE)
    monkeypatch.setattr(figures, "MAX_POINTS", 30)
    with Session(own) as session:
        part, again = (figures.density_activation(session, find_run(session, "first")) for _ in range(2))
    assert (part.drawn, part.total) == (30, ACTIVE)
    assert part == again


def test_curves_are_medians_over_experts_and_start_at_the_baseline(own: Engine, own_client: TestClient) -> None:
    def note() -> str:
        (section,) = chapter(own_client, "first", "steering")
        return str(section["figure"]["note"])

    with Session(own) as session, session.begin():
        for expert, kl in ((3, 0.1), (4, 0.2), (5, 0.9)):
            session.add(steering_strength(1, expert, "none", 0.0, 0.0))
            kinds = ("expert", "random_expert", "random_direction")
            session.add_all(steering_strength(1, expert, kind, 2.0, kl) for kind in kinds)
    found = figure(own_client, "steering", run="first")
    assert (found["drawn"], len(found["data"])) == (3, 12)
    names = [trace["name"] for trace in found["data"][:3]]
    assert names == ["Expert", "Random expert of its density", "Random direction"]
    assert (found["data"][0]["x"], found["data"][0]["y"]) == ([0.0, 2.0], [0.0, 0.2])
    assert note() == "3 experts"
    with Session(own) as session, session.begin():
        settings = SteeringEvaluationConfig().model_dump(mode="json")
        session.add(MeasurementRecord(run_id=1, command="evaluate-steering", settings=settings))
    assert note() == "3 experts, 3 samples of 24 tokens for each of 3 prompts per strength"


def test_metrics_have_keys_of_their_own_and_terms_of_the_glossary_whose_limits_are_filled_in() -> None:
    keys = [metric.key for metric in (*METRICS, *MEANS_OVER_EXPERTS)]
    assert len(keys) == len(set(keys))
    terms = {term.id: term.text for section in glossary() for term in section.terms}
    assert {metric.term for metric in METRICS} - {None} <= terms.keys()
    assert not [term for term, text in terms.items() if "{" in text or not text]
    assert "Below 20 active tokens" in terms["coactivation"]
    assert terms["l0"] == "Mean number of active experts per token."
