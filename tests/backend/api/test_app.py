"""The application as a whole: one shape of errors, headers, the front end, the API's description, figures, logs."""

import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.api.middleware import PERIOD_SECONDS, REPEATS_LOGGED, REQUEST_LOG, JsonFormatter, RepetitionFilter
from mxd.backend.settings import Settings

PAGE = {"accept": "text/html"}


@pytest.fixture
def built(tmp_path: Path) -> Iterator[TestClient]:
    dist = tmp_path / "dist"
    (dist / "assets").mkdir(parents=True)
    (dist / "index.html").write_text("<!doctype html><title>built</title>")
    (dist / "assets" / "main-1a2b.js").write_text("'use strict';")
    (tmp_path / "secret").write_text("secret")
    with TestClient(create_app(Settings(data=tmp_path, frontend=dist))) as client:
        yield client


def test_health_names_the_flags_of_another_data_folder(tmp_path: Path) -> None:
    assert Settings().command_flags == Settings(data=Path("data").resolve()).command_flags == ""
    assert Settings(data=Path.cwd() / "other").command_flags == "--data other"
    url = f"sqlite:///{tmp_path}/its own.sqlite"
    flags = f"--data {tmp_path} --database '{url}'"
    assert Settings(data=tmp_path, database=url).command_flags == flags
    assert Settings(data=tmp_path, database=url, host="0.0.0.0").command_flags == ""
    assert Settings(data=tmp_path, database="postgresql://me:secret@there/runs").command_flags == f"--data {tmp_path}"


def test_every_response_has_the_security_headers_also_without_a_front_end(client: TestClient) -> None:
    for path in ("/", "/api/health", "/api/none", "/docs", "/api/runs/none"):
        headers = client.get(path, headers=PAGE).headers
        assert "script-src 'self';" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    missing = client.get("/", headers=PAGE)
    assert (missing.status_code, "make install" in missing.text) == (503, True)
    assert client.get("/").json()["error"]["message"].startswith("The front end has not been built yet")
    page = client.get("/docs").text
    assert "<script" not in page
    assert "/api/runs/{run}/experts/{expert}/examples" in page
    assert "id='ExpertRow'" in page


def test_pages_are_served_as_index_html_and_scripts_as_compressed_at_build(built: TestClient, tmp_path: Path) -> None:
    for path in ("/", "/runs", "/runs/llama-3.2/experts/12"):
        answer = built.get(path, headers=PAGE)
        assert answer.text == "<!doctype html><title>built</title>"
        assert answer.headers["cache-control"] == "no-cache"
    script = tmp_path / "dist/assets/main-1a2b.js"
    answer = built.get("/assets/main-1a2b.js")
    assert answer.text == script.read_text()
    assert "immutable" in answer.headers["cache-control"]
    Path(f"{script}.gz").write_bytes(gzip.compress(script.read_bytes() + b"// built"))
    answer = built.get("/assets/main-1a2b.js")
    assert (answer.text, answer.headers["content-encoding"]) == ("'use strict';// built", "gzip")
    assert answer.headers["content-type"].startswith("text/javascript")
    again = built.get("/assets/main-1a2b.js", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    plain = built.get("/assets/main-1a2b.js", headers={"accept-encoding": "identity"})
    assert (plain.text, plain.headers["vary"]) == ("'use strict';", "Accept-Encoding")
    Path(f"{script}.br").write_bytes(b"built by brotli")
    for accepted, encoding in (
        ("gzip, deflate, br, zstd", "br"),
        ("br", "br"),
        ("gzip", "gzip"),
        ("gzip, br;q=0", "gzip"),
        ("gzip;q=0, br; q=0.0", None),
    ):
        with built.stream("GET", "/assets/main-1a2b.js", headers={"accept-encoding": accepted}) as answer:
            content = b"".join(answer.iter_raw())
        assert answer.headers.get("content-encoding") == encoding, accepted
        assert answer.headers["content-type"].startswith("text/javascript")
        assert (content == b"built by brotli") == (encoding == "br"), accepted


def test_an_unknown_path_or_method_is_a_json_error(built: TestClient) -> None:
    for path in ("/api/none", "/assets/none.js", "/..%2fsecret", "/%2e%2e/secret", "/a%00b"):
        answer = built.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not-found"), path
    for path, methods in (
        ("/api/health", "GET"),
        ("/api/runs/first/experts/1", "GET, PATCH"),
        ("/api/runs/first/lists/1", "GET, PATCH, DELETE"),
        ("/api/access", "GET, POST, DELETE"),
    ):
        answer = built.request("TRACE", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, methods), path
        assert answer.json()["error"]["code"] == "method-not-allowed"


def test_an_internal_error_reveals_no_details(tmp_path: Path) -> None:
    app = create_app(Settings(data=tmp_path))

    @app.get("/api/defect")
    def defect() -> None:
        raise RuntimeError("a secret path")

    app.router.routes.insert(0, app.router.routes.pop())
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/api/defect")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_requests_are_counted_and_logged_by_route(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, REQUEST_LOG)
    answer = client.get("/api/search", params={"runs": "first", "text": "a private thought"})
    record = next(it for it in caplog.records if it.name == REQUEST_LOG)
    line = json.loads(JsonFormatter().format(record))
    assert line["request_id"] == answer.headers["x-request-id"]
    assert (line["method"], line["route"], line["status"]) == ("GET", "/api/search", 200)
    for path in ("/api/runs/a-name-that-is-none", "/api/an-address-that-is-none"):
        client.get(path)
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'mxd_request_seconds_count{method="GET",route="/api/search",status="200"}' in page.text
    assert 'mxd_request_seconds_count{method="GET",route="/api/runs/{run}",status="404"}' in page.text
    assert "mxd_live_requests 0.0" in page.text
    database = next(line for line in page.text.splitlines() if line.startswith("mxd_database_bytes "))
    assert float(database.split()[1]) > 10_000
    for typed in ("private", "a-name-that-is-none", "an-address-that-is-none"):
        assert typed not in page.text + json.dumps(line)


def test_an_exception_is_logged_in_one_line() -> None:
    error = RuntimeError("two\nlines")
    text = JsonFormatter().format(record(logging.ERROR, "failed", (type(error), error, None)))
    assert "\n" not in text
    assert "RuntimeError" in json.loads(text)["exception"]


def record(level: int, message: str, exception: Any = None) -> logging.LogRecord:
    return logging.LogRecord("asyncio", level, "", 0, message, None, exception)


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
