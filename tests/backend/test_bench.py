"""The made-up store that is browsed is one that the server takes, and the figures have the names that are relied on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backend.app import create_app
from backend.bench.browse import paths_of
from backend.bench.store import RUN, Sizes, write_store
from backend.cli import run
from backend.settings import Settings
from tests.language_models import byte_tokenizer
from tests.postgresql import Server
from trainer.errors import UserError
from trainer.store import sqlite_url

SIZES = Sizes(experts=60, contexts=9)


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A client of a server on a small made-up store."""
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    assert write_store(tmp_path / "data", sqlite_url(tmp_path / "data"), tmp_path / "tokenizer", SIZES) > 10_000
    return TestClient(create_app(Settings(data=tmp_path / "data")))


def test_every_query_of_the_bench_is_answered(client: TestClient) -> None:
    with client:
        assert client.get("/api/health").json()["contexts"] == 60 * 9
        assert client.get(f"/api/runs/{RUN}/experts").json()["matching"] == 60
        detail = client.get(f"/api/runs/{RUN}/experts/7").json()
        assert sum(part["contexts"] for part in detail["intervals"]) == 9
        paths = paths_of(lambda path: client.get(path).content, SIZES)
        for name, path in paths.items():
            for place in range(3):
                assert client.get(path(place)).status_code == 200, name


def test_the_store_may_be_in_postgresql_and_is_taken_again(tmp_path: Path, postgresql_server: Server) -> None:
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    url = postgresql_server.new()
    assert write_store(tmp_path / "data", url, tmp_path / "tokenizer", SIZES) > 10_000
    assert write_store(tmp_path / "other", url, tmp_path / "tokenizer", SIZES) > 10_000
    with pytest.raises(UserError, match="give --experts 60, or another store"):
        write_store(tmp_path / "other", url, tmp_path / "tokenizer", Sizes(experts=61, contexts=9))
    with TestClient(create_app(Settings(data=tmp_path / "other", store=url))) as client:
        paths = paths_of(lambda path: client.get(path).content, SIZES)
        for name, path in paths.items():
            assert client.get(path(0)).status_code == 200, name


def test_layers_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--width 8 --hidden-width 12 --num-experts 40 --k 4 --tokens 16 --rounds 1 --device cpu"
    assert run(["bench", "layer", *sizes.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= {"speedup", "memory_ratio", "gradient_error"}
    assert found["gradient_error"] < 1e-4


def test_the_bench_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench"]) == 2
    assert "{layer, train, index, browse, generate, identity, soak}" in capsys.readouterr().err
    assert run(["bench", "browse", "--experts", "0"]) == 2
    assert capsys.readouterr().err == "mxd: --experts: Input should be greater than 0\n"
