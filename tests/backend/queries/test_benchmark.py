"""The benchmark as the dashboard shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mxd.backend.errors import UnusableBenchmarkError
from mxd.backend.queries.probes import stored_benchmark
from tests.helpers.analysis.benchmarks import DATASETS, UNITS, write_benchmark


def test_a_benchmark_is_read_with_its_areas_under_the_curve(tmp_path: Path) -> None:
    written = write_benchmark(tmp_path, "ours", "theirs")
    found = stored_benchmark(tmp_path)
    assert found is not None
    kinds = {subject.name: subject.kind for subject in found.subjects}
    assert kinds == {
        "ours": "run",
        "theirs": "run",
        "neurons of layer 3": "neurons",
        "random gate of layer 3": "random-gate",
    }
    assert next(iter(kinds)) == "ours"
    expected = [
        (one.subject, one.units, one.mean.value, one.mean.low, one.mean.high)
        for one in written.scores
        if one.metric == "auc"
    ]
    assert [(one.subject, one.units, one.mean, one.low, one.high) for one in found.scores] == expected
    better = [one.better for one in written.differences if one.metric == "auc"]
    assert [one.better for one in found.differences] == better
    assert (found.settings.units, found.settings.sae_probes, found.datasets) == (UNITS, "0.4.2", DATASETS)
    assert (found.training_texts, found.test_texts) == ((150, 200), (99, 99))


def _without(text: str, name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(text).items() if key != name})


DAMAGES = {
    "cut off": (lambda text: text[: len(text) // 2], "."),
    "another document": (lambda text: "[1, 2]", "the content: "),
    "an older format": (lambda text: _without(text, "scores"), "scores: Field required"),
    "not a number": (lambda text: text.replace('"low": ', '"low": NaN, "was": ', 1), "low: "),
    "another metric": (lambda text: text.replace('"auc"', '"area"'), "it has no scores of auc"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_is_no_benchmark_is_one_sentence(tmp_path: Path, damage: object, reason: str) -> None:
    assert callable(damage)
    write_benchmark(tmp_path, "ours")
    path = tmp_path / "benchmark" / "summary.json"
    path.write_text(damage(path.read_text()))
    message = rf"is not a summary of a benchmark: .*{reason}.*\. Run 'mxd benchmark'"
    with pytest.raises(UnusableBenchmarkError, match=message):
        stored_benchmark(tmp_path)


def test_the_benchmark_is_read_at_each_request(own_client: TestClient, tmp_path: Path) -> None:
    assert own_client.get("/api/benchmark").json() == {"benchmark": None}
    write_benchmark(tmp_path, "ours")
    found = own_client.get("/api/benchmark").json()["benchmark"]
    assert found["subjects"][0] == {"name": "ours", "kind": "run"}
    (tmp_path / "benchmark" / "summary.json").write_text("{}")
    answer = own_client.get("/api/benchmark")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "benchmark-unusable")
