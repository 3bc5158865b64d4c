"""The benchmark as the dashboard shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.queries.probes import stored_benchmark
from tests.helpers.analysis.benchmarks import write_benchmark


def _without(text: str, name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(text).items() if key != name})


DAMAGES = {
    "cut off": (lambda text: text[: len(text) // 2], "."),
    "another document": (lambda text: "[1, 2]", "the content: "),
    "an older format": (lambda text: _without(text, "scores"), "scores: Field required"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_is_no_benchmark_is_one_sentence(tmp_path: Path, damage: object, reason: str) -> None:
    assert callable(damage)
    write_benchmark(tmp_path, "ours")
    path = tmp_path / "benchmark" / "summary.json"
    path.write_text(damage(path.read_text()))
    benchmark, problem = stored_benchmark(tmp_path)
    assert benchmark is None
    assert re.search(rf"is not a summary of a benchmark: .*{reason}.*\. Run 'mxd benchmark'", problem or "")


def test_the_benchmark_is_read_at_each_request(own_client: TestClient, tmp_path: Path) -> None:
    def sections() -> list[dict[str, Any]]:
        chapters = own_client.get("/api/runs/first/report").json()["chapters"]
        return next(one["sections"] for one in chapters if one["key"] == "benchmark")

    assert sections()[0]["title"] == "No benchmark yet"
    write_benchmark(tmp_path, "ours")
    differences, scores = sections()
    assert scores["tables"][0]["rows"][0]["key"] == "ours"
    assert "higher on" in differences["tables"][0]["rows"][0]["cells"][0]["note"]
    (tmp_path / "benchmark" / "summary.json").write_text("{}")
    (damaged,) = sections()
    assert "Run 'mxd benchmark' again" in damaged["verdict"]
