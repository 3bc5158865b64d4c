"""Two runs compared: a permuted copy is seen through, matches are those of all pairs, recurrence."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from sqlalchemy import Engine, delete, update
from torch import Tensor

from mxd.backend.api.app import create_app
from mxd.backend.database.engine import opened
from mxd.backend.queries.matching import Directions, Vectors, match, token_shares
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.tables import MeasurementRecord, RecurrenceRecord
from mxd.trainer.storage.run import RUN_FILE, Run
from tests.backend.queries.test_experts import all_pages
from tests.helpers.databases import COMPARED, NUM_EXPERTS, permuted_copy
from tests.helpers.runs import World, byte_tokenizer

ORDER = np.random.default_rng(3).permutation(40).tolist()
COPIES = ("permuted", "elsewhere", "foreign", "bare")


def change(folder: Path, **settings: Any) -> None:
    """Change what a run says it was fitted with."""
    known = json.loads((folder / RUN_FILE).read_text("utf-8"))
    (folder / RUN_FILE).write_text(json.dumps(known | settings), "utf-8")


@pytest.fixture(scope="module")
def pair_client(fitted: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a server with the run ``small`` and copies of it: in the same place, in another layer, of another
    language model with other tokens."""
    data = shutil.copytree(fitted.data, tmp_path_factory.mktemp("pair") / "data")
    with opened(sqlite_url(data)) as database:
        for name in COPIES:
            permuted_copy(Run.load("small", data), name, ORDER, database)
        with database.begin() as connection:
            connection.exec_driver_sql("DELETE FROM indexes WHERE run_id = (SELECT id FROM runs WHERE name = 'bare')")
    change(data / "runs" / "elsewhere", layer=0)
    change(data / "runs" / "foreign", language_model="tiny-other")
    other_tokens = data / "runs" / "foreign" / "tokenizer"
    byte_tokenizer().save_pretrained(other_tokens)
    known = (other_tokens / "tokenizer.json").read_text("utf-8")
    (other_tokens / "tokenizer.json").write_text(known.replace('"a":', '"aa":'), "utf-8")
    with TestClient(create_app(Settings(data=data, frontend=data / "dist", device="cpu"))) as it:
        yield it


def compared(client: TestClient, other: str) -> Any:
    return client.get(f"/api/runs/small/comparison/{other}").raise_for_status().json()


def test_experts_of_a_permuted_copy_are_matched(pair_client: TestClient) -> None:
    answer = compared(pair_client, "permuted")
    assert answer["by"] == "gate"
    assert answer["active"] == answer["other_active"] == len(answer["pairs"])
    assert answer["mutual_share"] == 1
    assert answer["median_cosine"] == pytest.approx(1, abs=1e-5)
    assert answer["chance_cosine"] < 0.95
    densities = [pair["one"]["density"] for pair in answer["pairs"]]
    assert densities == sorted(densities, reverse=True)
    for pair in answer["pairs"]:
        one, other = pair["one"], pair["other"]
        assert ORDER[other["expert"]] == one["expert"]
        assert (one["density"], one["top_tokens"]) == (other["density"], other["top_tokens"])
        assert pair["mutual"]
        assert pair["cosine"] == pytest.approx(1, abs=1e-5)


def test_runs_of_different_layers_are_matched_by_tokens(pair_client: TestClient) -> None:
    answer = compared(pair_client, "elsewhere")
    assert (answer["by"], answer["mutual_share"]) == ("tokens", 1)
    assert answer["median_cosine"] == pytest.approx(1, abs=1e-5)
    assert answer["chance_cosine"] < 1


def test_incomparable_runs_are_errors(pair_client: TestClient) -> None:
    for path, status, said in (
        ("small/comparison/none", 404, "Unknown run 'none'."),
        ("none/comparison/small", 404, "Unknown run 'none'."),
        ("small/comparison/small", 400, "small cannot be compared with itself"),
        ("small/comparison/bare", 404, "Run 'bare' is not indexed. Run 'mxd index bare"),
        ("bare/comparison/small", 404, "Run 'bare' is not indexed. Run 'mxd index bare"),
        ("small/comparison/foreign", 400, "The language models of 'small' and 'foreign' have different tokenizers"),
    ):
        answer = pair_client.get(f"/api/runs/{path}")
        assert answer.status_code == status
        assert answer.json()["error"]["message"].startswith(said)


def two_gates(generator: np.random.Generator) -> tuple[Vectors, Vectors, Tensor, Tensor]:
    """Some rows of two random gates, and these as plain tables."""
    weights = [torch.from_numpy(generator.normal(0.3, 1, (count, 24)).astype(np.float32)) for count in (74, 106)]
    one, other = (Directions(weight_ND.__getitem__, torch.arange(0, len(weight_ND), 2)) for weight_ND in weights)
    return one, other, weights[0][::2], weights[1][::2]


def two_token_shares(generator: np.random.Generator) -> tuple[Vectors, Vectors, Tensor, Tensor]:
    """Shares of up to six of thirty tokens for each expert of two runs, and these as tables with a column a token."""
    tables = [torch.from_numpy(generator.uniform(0.05, 0.5, (count, 30))).float() for count in (37, 53)]
    for row in (row for table in tables for row in table):
        row[generator.permutation(30)[generator.integers(1, 7) :]] = 0
    one, other = ([[(int(token), float(row[token])) for token in row.nonzero()] for row in table] for table in tables)
    return *token_shares(one, other), tables[0], tables[1]


@pytest.mark.parametrize("made", [two_gates, two_token_shares])
def test_matches_equal_those_of_all_pairs(
    made: Callable[[np.random.Generator], tuple[Vectors, Vectors, Tensor, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("QUERIES_PER_BLOCK", "EXPERTS_PER_BLOCK"):
        monkeypatch.setattr(f"mxd.backend.queries.matching.{name}", 7)
    one, other, one_ED, other_ED = made(np.random.default_rng(0))
    places = torch.tensor([5, 0, 36, 11, 12, 30, 2, 17, 9])
    cosines = torch.nn.functional.cosine_similarity(one_ED[:, None], other_ED[None], dim=2)
    found = match(one, other, places)
    best, where = cosines[places].max(dim=1)
    torch.testing.assert_close(found.cosines_Q, best)
    assert found.places_Q.tolist() == where.tolist()
    assert found.mutual_Q.tolist() == (cosines[:, where].argmax(dim=0) == places).tolist()
    assert set(found.mutual_Q.tolist()) == {True, False}
    assert -1 <= found.chance_cosine <= 1
    assert match(one, other, places).chance_cosine == found.chance_cosine


def test_an_expert_has_one_mutual_match_at_most() -> None:
    one_ED, other_ED = torch.eye(8), torch.eye(8)
    one_ED[6] = one_ED[2] + 1e-4 * one_ED[0]  # their cosines with the match differ by less than rounding
    other_ED[5] = other_ED[4]
    ids = torch.arange(8)
    one, other = Directions(lambda at: one_ED[at], ids), Directions(lambda at: other_ED[at], ids)
    found = match(one, other, torch.tensor([6, 4, 2]))
    assert found.places_Q.tolist() == [2, 4, 2]
    assert found.mutual_Q.tolist() == [False, True, True]


def test_the_chance_level_keeps_shared_components() -> None:
    generator = np.random.default_rng(2)
    common = generator.normal(0, 1, 64) * 5
    weights = [torch.from_numpy((common + generator.normal(0, 1, (300, 64))).astype(np.float32)) for _ in range(2)]
    one, other = (Directions(weight.__getitem__, torch.arange(300)) for weight in weights)
    found = match(one, other, torch.arange(300))
    # Independent experts around one direction are as alike as chance makes them, which is far from 0.
    assert found.chance_cosine > 0.9
    assert found.chance_cosine == pytest.approx(float(found.cosines_Q.median()), abs=0.01)


def test_experts_are_ordered_by_the_number_of_other_runs_that_found_them(client: TestClient) -> None:
    """Ties are ordered by similarity, and experts without a comparison come last."""
    found = [(2, 1, 0)[expert % 3] for expert in range(COMPARED)]
    rows = all_pages(client, sort="expert", order="asc", limit=50)
    assert [row["recurrence"] for row in rows] == found + [None] * (NUM_EXPERTS - COMPARED)
    assert [row["compared_runs"] for row in rows] == [2] * COMPARED + [None] * (NUM_EXPERTS - COMPARED)
    keys = [(found[expert], expert % 4) for expert in range(COMPARED)]
    for order in ("desc", "asc"):
        experts = [row["expert"] for row in all_pages(client, sort="recurrence", order=order, limit=9)]
        assert [keys[expert] for expert in experts[:COMPARED]] == sorted(keys, reverse=order == "desc")
        assert set(experts[COMPARED:]) == set(range(COMPARED, NUM_EXPERTS))


def test_detail_has_the_matches_with_chance_levels(client: TestClient) -> None:
    recurrence = client.get("/api/runs/first/experts/4").json()["recurrence"]
    assert (recurrence["text"], recurrence["tokens"], recurrence["min_tokens"]) == ("held-out.jsonl", 4000, 20)
    second, third = recurrence["matches"]
    assert (second["run"], second["expert"], second["is_found"], third["is_found"]) == ("second", 5, True, False)
    assert second["firing_low"] < second["firing_cosine"] < second["firing_high"]
    assert not second["is_indexed"]
    assert client.get(f"/api/runs/first/experts/{COMPARED}").json()["recurrence"]["matches"] == []


def test_a_new_measurement_replaces_the_cached_one(own: Engine, own_client: TestClient) -> None:
    page: dict[str, str | int] = {"sort": "recurrence", "limit": 3}
    before = own_client.get("/api/runs/first/experts", params=page).json()["experts"]
    with writing(own) as session:
        session.execute(update(RecurrenceRecord).values(firing_chance=0.9))
    after = own_client.get("/api/runs/first/experts", params=page).json()["experts"]
    assert before != after
    with writing(own) as session:
        session.execute(delete(RecurrenceRecord))
        session.execute(delete(MeasurementRecord))
    rows = own_client.get("/api/runs/first/experts", params=page).json()["experts"]
    assert all(row["recurrence"] is None for row in rows)
    assert own_client.get("/api/runs/first/experts/4").json()["recurrence"] is None
