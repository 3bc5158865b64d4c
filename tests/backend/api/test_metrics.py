"""Figures for Prometheus and lines of log: by route, without what people typed, and few for a repeated problem."""

import json
import logging

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.middleware import PERIOD_SECONDS, REPEATS_LOGGED, REQUEST_LOG, JsonFormatter, RepetitionFilter


def test_requests_are_counted_by_route(client: TestClient) -> None:
    client.get("/api/search", params={"runs": "first", "text": "a private thought"})
    client.get("/api/runs/a-name-that-is-none")
    client.get("/api/an-address-that-is-none")
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'mxd_request_seconds_count{method="GET",route="/api/search",status="200"}' in page.text
    assert 'mxd_request_seconds_count{method="GET",route="/api/runs/{run}",status="404"}' in page.text
    assert "a-name-that-is-none" not in page.text
    assert "an-address-that-is-none" not in page.text
    assert "private" not in page.text
    assert "mxd_live_requests 0.0" in page.text
    database = next(line for line in page.text.splitlines() if line.startswith("mxd_database_bytes "))
    assert float(database.split()[1]) > 10_000


def test_every_request_has_an_id_and_a_log_line(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, REQUEST_LOG)
    answer = client.get("/api/search", params={"runs": "first", "text": "a private thought"})
    record = next(it for it in caplog.records if it.name == REQUEST_LOG)
    line = json.loads(JsonFormatter().format(record))
    assert line["request_id"] == answer.headers["x-request-id"]
    assert (line["method"], line["route"], line["status"]) == ("GET", "/api/search", 200)
    assert "private" not in json.dumps(line)


def test_an_exception_is_logged_in_one_line() -> None:
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError as error:
        record = logging.LogRecord("mxd", logging.ERROR, "", 0, "failed", None, (type(error), error, None))
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "RuntimeError" in json.loads(text)["exception"]


def record(level: int, message: str) -> logging.LogRecord:
    return logging.LogRecord("asyncio", level, "", 0, message, None, None)


def test_a_repeated_problem_is_logged_a_few_times_per_period() -> None:
    now = [0.0]
    limited = RepetitionFilter(lambda: now[0])
    problems = [record(logging.ERROR, f"accept() failed\nsocket {place}") for place in range(1_000)]
    passed = [problem for problem in problems if limited.filter(problem)]
    assert len(passed) == REPEATS_LOGGED
    assert "further ones are not logged" in passed[-1].getMessage()
    assert limited.filter(record(logging.ERROR, "something else"))
    assert all(limited.filter(record(logging.INFO, "a request")) for _ in range(100))
    now[0] = PERIOD_SECONDS + 1
    assert limited.filter(record(logging.ERROR, "accept() failed"))
