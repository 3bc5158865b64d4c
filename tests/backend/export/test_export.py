"""Exports: all formats and the static site agree, graphs have their fields, nothing is left of a cancelled export."""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pyarrow.parquet import read_table

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.database import annotations
from mxd.backend.database.engine import opened, reading
from mxd.backend.export.attribution_graph import FOLDER, attribution_graph, cantor, write_features, write_graph
from mxd.backend.export.static_site.write import COLUMNS, EXAMPLES, EXPERTS_PER_FILE
from mxd.backend.export.tables import UNMEASURED, Exported, export_run
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.settings import Settings
from mxd.trainer.analysis.circuits.graph import (
    AblationEffect,
    Agreement,
    Circuit,
    CircuitCheck,
    CircuitEdge,
    CircuitNode,
    CircuitToken,
    CircuitVerdict,
    GraphScores,
    NextToken,
    Sufficiency,
)
from mxd.trainer.analysis.expert import TOKENS_AROUND_PEAK
from mxd.trainer.config.analysis import ExpertTarget, TokenTarget
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.display import printable, spreadsheet_text
from tests.backend.cli.conftest import Capture, output, rejected
from tests.helpers.databases import ACTIVE, NUM_EXPERTS, PER_EXPERT, SENTENCES, made_up_database
from tests.helpers.runs import byte_tokenizer

FORMATS = ("json", "csv", "parquet", "neuronpedia", "site")
HOSTILE = "</script><img src=x onerror=alert(1)>"
FEATURE_FIELDS = (
    "feature_index neg_str neg_values pos_str pos_values frac_nonzero freq_hist_data_bar_values "
    "freq_hist_data_bar_heights n_prompts_total n_tokens_in_prompt dataset activations"
)
EXAMPLE_FIELDS = "bin_min bin_max bin_contains tokens values qualifying_token_index"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with an indexed run, two of whose experts have hostile labels, exported in every format."""
    folder = tmp_path_factory.mktemp("data")
    database = made_up_database(folder, sqlite_url(folder))
    with writing(database) as session:
        annotations.set_label(session, "first", 3, '=1+1, "foxes\x1b[2J"')
        annotations.set_label(session, "first", 5, HOSTILE)
    database.dispose()
    for name in FORMATS:
        words = ["export", "first", "--format", name, "--out", str(folder / name), "--data", str(folder)]
        assert mxd(words) == 0
    return folder


def rows(data: Path, suffix: str, what: str) -> list[dict[str, Any]]:
    path = data / suffix / f"{what}.{suffix}"
    if suffix == "json":
        loaded: list[dict[str, Any]] = json.loads(path.read_text())
        return loaded
    if suffix == "csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    # A column with named fields is a list of lists in JSON.
    packed = ("active", "bins")
    return [
        {name: [tuple(it.values()) for it in value] if name in packed else value for name, value in row.items()}
        for row in read_table(path).to_pylist()
    ]


def test_json_has_every_expert_and_example(data: Path) -> None:
    experts, contexts = rows(data, "json", "experts"), rows(data, "json", "examples")
    assert [row["expert"] for row in experts] == list(range(NUM_EXPERTS))
    assert len(contexts) == ACTIVE * PER_EXPERT
    assert (experts[3]["label"], experts[4]["label"]) == ('=1+1, "foxes\x1b[2J"', None)
    assert sum(count["count"] for count in experts[0]["top_tokens"]) <= experts[0]["active_tokens"]
    first = contexts[0]
    assert (first["expert"], first["bin"], first["rank"]) == (0, 0, 0)
    assert "".join(first["tokens"]) == SENTENCES[0][:16]
    assert [first["position"], first["activation"], 2] in first["active"]


@pytest.mark.parametrize("what", ["experts", "examples"])
def test_all_formats_have_the_same_values(data: Path, what: str) -> None:
    """In CSV, texts cannot be formulas or have escape sequences."""

    def in_csv(value: object) -> object:
        text = printable(spreadsheet_text(value)) if isinstance(value, str) else str(value)
        return "" if value is None else text

    wanted = rows(data, "json", what)
    for row, parquet in zip(wanted, rows(data, "parquet", what), strict=True):
        assert json.loads(json.dumps(parquet)) == row
    for row, cells in zip(wanted, rows(data, "csv", what), strict=True):
        lists = {name for name, value in row.items() if isinstance(value, list | dict)}
        assert {name: json.loads(cells[name]) if name in lists else cells[name] for name in cells} == {
            name: value if name in lists else in_csv(value) for name, value in row.items()
        }


def test_labels_cannot_inject_formulas_or_escape_sequences(data: Path, capsys: Capture) -> None:
    assert rows(data, "csv", "experts")[3]["label"] == """'=1+1, "foxes\\u001b[2J\""""
    said = output(capsys, "experts", "first", "--search", "foxes", "--data", str(data))
    assert "\\u001b[2J" in said
    assert "\x1b" not in said


def test_neuronpedia_batches(data: Path) -> None:
    folder = data / "neuronpedia"
    batch = json.loads((folder / "batch-0.json").read_text())
    assert (batch["model_id"], batch["layer"], batch["sae_set"]) == ("tiny-llama", 1, "first")
    assert [feature["feature_index"] for feature in batch["features"]] == list(range(ACTIVE))
    for feature in batch["features"]:
        assert feature.keys() == {*FEATURE_FIELDS.split(), *UNMEASURED}
        assert len(feature["freq_hist_data_bar_values"]) == len(feature["freq_hist_data_bar_heights"])
        assert len(feature["activations"]) == PER_EXPERT
        for activation in feature["activations"]:
            assert activation.keys() == {*EXAMPLE_FIELDS.split()}
            assert len(activation["tokens"]) == len(activation["values"])
            assert max(activation["values"]) > 0
    top, random = batch["features"][0]["activations"][0], batch["features"][0]["activations"][-1]
    assert (top["bin_min"], top["bin_contains"]) == (-1, -1)
    assert (random["bin_min"], random["bin_max"]) == (4.0, 8.0)
    assert batch["features"][0]["pos_values"] == [0.5, 0.25]
    skipped = json.loads((folder / "skipped_indexes.json").read_text())
    assert skipped["skipped_indexes"] == list(range(ACTIVE, NUM_EXPERTS))


def test_feature_files_hold_the_examples_and_the_promoted_tokens_of_experts(data: Path, tmp_path: Path) -> None:
    vocabulary, experts = Vocabulary(byte_tokenizer()), (3, NUM_EXPERTS - 1)
    with opened(sqlite_url(data)) as database, reading(database) as session:
        run = find_run(session, "first")
        write_features(session, Exported(run, find_index(session, run), vocabulary), set(experts), tmp_path)
    measured, dead = (json.loads((tmp_path / FOLDER / f"{cantor(1, it)}.json").read_text()) for it in experts)
    assert measured["top_logits"] == vocabulary.names([40, 41])
    assert measured["bottom_logits"] == vocabulary.names([42])
    assert sum(len(quantile["examples"]) for quantile in measured["examples_quantiles"]) == PER_EXPERT
    assert (dead["top_logits"], dead["examples_quantiles"]) == ([], [])


def test_invalid_exports_are_rejected(data: Path, capsys: Capture) -> None:
    for words, sentence in (
        (["first", "--out", f"{data}"], "not empty"),
        (["second", "--out", f"{data}/new"], "is not indexed"),
        (["third", "--out", f"{data}/new"], "Unknown run 'third'"),
        (["first", "--format", "xml", "--out", f"{data}/new"], "--format"),
    ):
        assert sentence in rejected(capsys, "export", *words, "--data", str(data))
    assert not (data / "new").exists()


REQUIRED = {"node_id", "feature", "layer", "ctx_idx", "feature_type", "jsNodeId", "clerp"}
AGREEMENT = Agreement(2, None, 1.0, None, 0.5)
CHECK = CircuitCheck(
    measured=(None, -2.5, 0.8), edges=(-2.5, 0.8, -0.4), left_top_k=(False, False, False),
    experts=AGREEMENT, between=AGREEMENT, joint=AblationEffect(-2.0, -1.9),
    sufficiency=Sufficiency(1.0, 3.0, 3.5, 2.0, 8, 1.1, 0.1), scores=GraphScores(0.1, 0.5),
    verdict=CircuitVerdict("good", "Explained.", "Sufficient.", (), ""),
)  # fmt: skip
CIRCUIT = Circuit(
    runs=("first", "second"), layers=(1, 2), tokens=(CircuitToken(0, "<s>", True), CircuitToken(9, "The", False)),
    prompt_tokens=2, target=TokenTarget(token=5), label="logit of ' fox'", value=4.0,
    candidates=(NextToken(5, " fox", 0.5, 4.0),),
    nodes=(
        CircuitNode("target", 1, None, None, None, None, 4.0, "gradient"),
        CircuitNode("expert", 1, 2, "second", 7, 2.0, -3.0, "path"),
        CircuitNode("expert", 1, 1, "first", 4, 1.5, 1.0, "gradient"),
    ),
    edges=(CircuitEdge(1, 0, -3.0, False), CircuitEdge(2, 0, 1.0, False), CircuitEdge(2, 1, -0.5, False)),
    active=40, retained=0.4,
)  # fmt: skip
"""Expert 4 of layer 1 raises the score of expert 7 of layer 2, which raises the target; it lowers it otherwise."""


def test_nodes_and_links_have_both_effects(tmp_path: Path) -> None:
    graph = attribution_graph(CIRCUIT, {"second": {7: "foxes"}}, CHECK)
    assert all(node.keys() >= REQUIRED for node in graph["nodes"])
    target, late, early = graph["nodes"]
    assert (target["feature_type"], target["feature"], target["token_prob"]) == ("logit", 5, 0.5)
    assert target["clerp"].endswith("(p=0.500)"), "circuit-tracer's page reads the probability from here"
    assert late["clerp"] == "foxes (ablation: predicted -3.000, measured -2.500)"
    assert (early["predicted_effect"], early["measured_effect"]) == (1.0, 0.8)
    assert [
        tuple(link[key] for key in ("source", "target", "weight", "measured_effect")) for link in graph["links"]
    ] == [("2_7_1", "4_5_1", 3.0, -2.5), ("1_4_1", "4_5_1", -1.0, 0.8), ("1_4_1", "2_7_1", 0.5, -0.4)]
    assert [node["influence"] for node in graph["nodes"]] == [None, 0.75, 1.0]
    assert graph["metadata"]["mxd_circuit"]["active_experts"] == 40
    for _ in range(2):  # writing again replaces the entry
        path = write_graph(graph, tmp_path)
    assert [it["slug"] for it in json.loads((tmp_path / "graph-metadata.json").read_text())["graphs"]] == [path.stem]


def test_a_circuit_without_a_check_has_predictions_only_and_a_target_expert_the_most_probable_token() -> None:
    changed = replace(CIRCUIT, target=ExpertTarget(run="second", expert=3), label="activation")
    graph = attribution_graph(changed, {})
    assert "measured" not in json.dumps(graph)
    assert graph["nodes"][1]["clerp"] == "Expert 7 (ablation: predicted -3.000)"
    assert graph["nodes"][0]["feature"] == 5


@pytest.fixture(scope="module")
def site(data: Path) -> Path:
    return data / "site"


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as it:
        yield it


def read(site: Path, name: str) -> Any:
    """Content of a file of data, which is a call of a function or an assignment."""
    text = (site / "data" / f"{name}.js").read_text("utf-8")
    start = text.index("= " if name == "table" else ", ") + 2
    return json.loads(text[start:].rstrip(";\n)"))


def texts(site: Path, expert: int) -> list[str]:
    detail = read(site, f"experts-{expert // EXPERTS_PER_FILE}")[str(expert)]
    return ["".join(part if isinstance(part, str) else part[0] for part in parts) for _, parts in detail["examples"]]


def test_labels_statistics_and_examples_equal_those_of_the_server(client: TestClient, site: Path) -> None:
    served_columns = {column["key"]: column for column in client.get("/api/columns").json()["columns"]}
    assert read(site, "table")["columns"] == [served_columns[column.key] for column in COLUMNS]
    for row in read(site, "table")["rows"]:
        number = row["expert"]
        path = f"/api/runs/first/experts/{number}"
        served = client.get(path).json()["row"]
        assert row["label"] == served["label"]
        assert row["automatic"] == (served["automatic"] and served["automatic"]["label"])
        assert row["tokens"] == [token["text"] for token in served["top_tokens"]]
        for column in COLUMNS:
            assert row[column.key] == (served[column.key] and pytest.approx(served[column.key], rel=1e-6))
        detail = read(site, f"experts-{number // EXPERTS_PER_FILE}")[str(number)]
        assert detail["histogram"] == served["histogram"]
        examples = client.get(f"{path}/examples", params={"bin": 0, "limit": EXAMPLES}).json()["examples"]
        for (activation, parts), text, example in zip(detail["examples"], texts(site, number), examples, strict=True):
            assert activation == pytest.approx(example["activation"], rel=1e-6)
            first, last = (example["position"] + way * TOKENS_AROUND_PEAK for way in (-1, 1))
            assert text == "".join(example["tokens"][max(first, 0) : last + 1]).lstrip(" ")
            active = [strength for position, strength, _ in example["active"] if first <= position <= last]
            marked = [part for part in parts if not isinstance(part, str)]
            assert [part[1] for part in marked] == pytest.approx(active, abs=1e-4)
            assert [len(part) for part in marked].count(3) == 1


def test_words_lead_to_the_experts_whose_examples_have_them(site: Path) -> None:
    index = [item for path in (site / "data").glob("words-*.js") for item in read(site, path.stem).items()]
    for row in read(site, "table")["rows"][:20]:
        words = set(re.findall(r"[^\W_]+", " ".join(texts(site, row["expert"])).lower()))
        assert words and words == {word for word, experts in index if row["expert"] in experts}


def test_labels_of_users_are_data_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    assert "weights" in page
    assert "mxd" in page
    assert HOSTILE not in page
    assert "innerHTML" not in (site / "site.js").read_text("utf-8")
    for path in (site / "index.html", site / "site.css"):
        assert not re.search(r"(src|href)=\"(https?:|/)|url\(", path.read_text("utf-8"))


def test_a_site_appears_whole_or_not_at_all(data: Path, tmp_path: Path) -> None:
    run = Run.load("first", data)
    with opened(sqlite_url(data)) as database, reading(database) as session:
        with pytest.raises(CancelledError):
            export_run(session, run, tmp_path / "cancelled", "site", Callbacks(is_cancelled=lambda: True))
        assert not list(tmp_path.iterdir())
        (tmp_path / "thesis.txt").write_text("mine")
        with pytest.raises(UserError, match="not empty"):
            export_run(session, run, tmp_path, "site", NO_CALLBACKS)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
