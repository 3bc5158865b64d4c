"""The synthetic database of the browsing benchmark is valid, and the results have the documented fields."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from benchmarks.__main__ import main
from benchmarks.backend.browse import paths_of
from benchmarks.backend.database import RUN, Sizes, write_database
from benchmarks.backend.load import Load, hold
from benchmarks.backend.together import Second, recovered
from mxd.backend.api.app import create_app
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.open import sqlite_url
from tests.helpers.language_models import CONFIGS, byte_tokenizer
from tests.helpers.servers.postgresql import Server

SIZES = Sizes(experts=60, examples=9)


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A client of a server on a small synthetic database."""
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    assert write_database(tmp_path / "data", sqlite_url(tmp_path / "data"), tmp_path / "tokenizer", SIZES) > 10_000
    return TestClient(create_app(Settings(data=tmp_path / "data")))


def test_every_query_of_the_bench_is_answered(client: TestClient) -> None:
    with client:
        assert client.get("/api/health").json()["examples"] == 60 * 9
        assert client.get(f"/api/runs/{RUN}/experts").json()["matching"] == 60
        detail = client.get(f"/api/runs/{RUN}/experts/7").json()
        assert sum(part["examples"] for part in detail["bins"]) == 9
        paths = paths_of(lambda path: client.get(path).content, SIZES)
        for name, path in paths.items():
            for place in range(3):
                assert client.get(path(place)).status_code == 200, name


def test_the_database_may_be_postgresql_and_is_reused(tmp_path: Path, postgresql_server: Server) -> None:
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    url = postgresql_server.new()
    assert write_database(tmp_path / "data", url, tmp_path / "tokenizer", SIZES) > 10_000
    assert write_database(tmp_path / "other", url, tmp_path / "tokenizer", SIZES) > 10_000
    with pytest.raises(UserError, match="give --experts 60, or another database"):
        write_database(tmp_path / "other", url, tmp_path / "tokenizer", Sizes(experts=61, examples=9))
    with TestClient(create_app(Settings(data=tmp_path / "other", database=url))) as client:
        paths = paths_of(lambda path: client.get(path).content, SIZES)
        for name, path in paths.items():
            assert client.get(path(0)).status_code == 200, name


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        ([(0.0, 9, 0), (1.2, 0, 0), (2.2, 0, 0)], 1.2),
        ([(0.0, 0, 0), (1.2, 0, 1), (2.2, 0, 0)], 2.2),
        ([(0.0, 0, 0), (1.2, 1, 0)], None),
        ([(0.0, 0, 0)], 0.0),
    ],
)
def test_a_server_has_recovered_once_no_request_is_rejected(
    after: list[tuple[float, int, int]], seconds: float | None
) -> None:
    assert recovered([Second(at, at + 1.2, 1.0, refused, errors) for at, refused, errors in after]) == seconds


def test_rejections_must_have_retry_after() -> None:
    answers = (b"503 Busy\r\nRetry-After: 5", b"429 Often\r\nretry-after: 1", b"503 Busy", b"200 OK", b"500 Wrong")

    async def load() -> Load:
        turn = count()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError):
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(b"HTTP/1.1 " + answers[next(turn)] + b"\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await hold(f"http://127.0.0.1:{port}", lambda _: "/", rate=100, seconds=len(answers) / 100)
        finally:
            server.close()
            await asyncio.sleep(0.1)  # both ends hang up

    found = asyncio.run(load())
    assert (found.refused, found.errors) == (2, 2)


def test_layers_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--width 8 --hidden-width 12 --num-experts 30,40 --k 4,5 --tokens 16,24 --rounds 1 --device cpu"
    assert main(["layer", *sizes.split(), "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    grown = [(30, 4, 16), (40, 4, 16), (40, 5, 16), (40, 4, 24)]
    assert [(it["num_experts"], it["k"], it["tokens"]) for it in points] == grown
    assert points[0].keys() >= {"speedup", "memory_ratio"}
    assert all(it["gradient_error"] < 1e-4 for it in points)


def test_unknown_benchmarks_and_invalid_values_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "benchmarks: layer, train" in capsys.readouterr().out
    assert main(["layr"]) == 2
    assert "Unknown benchmark 'layr'. Did you mean 'layer'?" in capsys.readouterr().err
    assert main(["browse", "--experts", "0"]) == 2
    assert capsys.readouterr().err == "mxd: Invalid --experts: '0'. Input should be greater than 0.\n"


def test_a_large_shape_is_measured_on_a_few_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    CONFIGS["llama"].save_pretrained(tmp_path)
    sizes = "--blocks 1,2 --num-experts 20,40 --k 4 --tokens 64 --batch 32 --context 16 --parts step --rounds 1"
    assert main(["large", str(tmp_path), *sizes.split(), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "step, N 40" in shown
    assert "GB a 1,000 experts" in shown
    assert main(["large", "--tokens", "64", "--batch", "128"]) == 2
    assert "--batch above --tokens" in capsys.readouterr().err
    assert main(["large", "no-such-model", "--parts", "step"]) == 2
    assert "no-such-model" in capsys.readouterr().err
