"""The application as a whole: one shape of errors, headers, the front end, the API's description, logs."""

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
from tests.helpers.databases import NUM_EXPERTS

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


FIRST, SMALL = "/api/runs/first", "/api/runs/small"
PROMPT, MORE, LONG = "the old fox", [{"expert": 1, "mode": "add"}], "x" * 500
ASKED: dict[str, Any] = {"prompt": PROMPT}
TWELVE = {"documents": ["the red fox ran"] * 12}
CONTRAST: dict[str, Any] = {"a": TWELVE, "b": TWELVE, "min_tokens": 5, "min_units": 2}
CIRCUIT: dict[str, Any] = {"runs": ["small"], "text": PROMPT}
FIND = {"runs": ["small"], "prompts": [PROMPT], "wanted": [" sang"], "probability": 0.1}
TOO_MANY = "small: k=5 exceeds the layer's K=4. Choose a smaller k."

READ = [
    ("/api/runs/none/experts", 404, "run-not-found"),
    ("/api/runs/second/experts", 404, "no-index"),
    ("/api/runs/second/experts/3", 404, "no-index"),
    ("/api/runs/second/experts?sort=random", 404, "no-index"),
    (f"{FIRST}/experts/{NUM_EXPERTS}", 404, "expert-not-found"),
    (f"{FIRST}/experts/{NUM_EXPERTS}/map", 404, "expert-not-found"),
    (f"{FIRST}/experts/{10**30}", 422, "invalid-request"),
    (f"{FIRST}/experts/-1", 422, "invalid-request"),
    (f"{FIRST}/experts?sort=size", 422, "invalid-request"),
    (f"{FIRST}/experts?limit=0", 422, "invalid-request"),
    (f"{FIRST}/experts?min_density=nan", 422, "invalid-request"),
    (f"{FIRST}/experts?colour=red", 422, "invalid-request"),
    (f"{FIRST}/experts?among=all", 422, "invalid-request"),
    (f"{FIRST}/experts?among=5;2", 422, "invalid-request"),
    (f"{FIRST}/experts/3/examples?seed=1&bin=0", 422, "invalid-request"),
    (f"{FIRST}/experts/3/examples?cursor=eyJ9", 400, "bad-cursor"),
    (f"{FIRST}/events?after={10**20}", 422, "invalid-request"),
    ("/api/runs/none/events", 404, "run-not-found"),
    ("/api/runs/nobody/report", 404, "run-not-found"),
    ("/api/figures/training", 400, "error"),
    ("/api/figures/density-activation?run=second", 404, "error"),
    ("/api/figures/pie?run=first", 422, "error"),
]


@pytest.mark.parametrize(("path", "status", "words"), READ)
def test_not_readable(client: TestClient, path: str, status: int, words: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert answer.json()["error"]["message"].endswith(".")


def ablated(run: str, position: int, expert: int) -> dict[str, Any]:
    return CIRCUIT | {"groups": [[{"run": run, "position": position, "expert": expert}]]}


COMPUTED: list[tuple[str, dict[str, Any], int, str]] = [
    (f"{SMALL}/routing", {"text": ""}, 400, "bad-input"),
    (f"{SMALL}/routing", {"text": LONG}, 413, "prompt-too-long"),
    (f"{SMALL}/routing", {"text": PROMPT, "k": 5}, 400, TOO_MANY),
    (f"{SMALL}/routing/predictions", {"text": PROMPT, "k": 5}, 400, TOO_MANY),
    (f"{SMALL}/routing/predictions", {"text": PROMPT, "others": ["small"]}, 400, "A run is listed twice"),
    (f"{SMALL}/routing/predictions", {"text": PROMPT, "others": ["missing"]}, 404, "run-not-found"),
    (f"{SMALL}/routing/effects", {"text": PROMPT, "position": 1, "k": 5}, 400, TOO_MANY),
    (f"{SMALL}/search/passage", {"text": PROMPT, "position": 999}, 400, "Unknown token 999."),
    (f"{SMALL}/steering", ASKED | {"k": 5}, 400, TOO_MANY),
    (f"{SMALL}/steering", {"prompt": LONG}, 413, "prompt-too-long"),
    (f"{SMALL}/steering", ASKED | {"sampling": {"max_tokens": 4000}}, 413, "prompt-too-long"),
    (f"{SMALL}/steering", ASKED | {"sampling": {"temperature": -1}}, 422, "invalid-request"),
    (f"{SMALL}/steering", ASKED | {"edits": [{"expert": 4000, "mode": "ablate"}]}, 404, "expert-not-found"),
    (f"{SMALL}/steering", ASKED | {"edits": [{"expert": 1, "mode": "ablate", "run": "x"}]}, 404, "run-not-found"),
    (f"{SMALL}/steering", ASKED | {"edits": [{"expert": 1, "mode": "more"}]}, 422, "invalid-request"),
    (f"{SMALL}/steering", ASKED | {"edits": ["3:add:4@fist:1"]}, 422, "Unknown clause: '@fist:1'"),
    (f"{SMALL}/steering/sweep", ASKED | {"edits": MORE, "k": 5}, 400, TOO_MANY),
    (f"{SMALL}/steering/sweep", ASKED | {"edits": MORE, "control": 4000}, 404, "expert-not-found"),
    (f"{SMALL}/steering/sweep", ASKED | {"edits": [{"expert": 2**63, "mode": "add"}]}, 422, "invalid-request"),
    (f"{SMALL}/steering/price", {"edits": ["3:add:1@generated"]}, 400, "with a condition cannot be measured"),
    (f"{SMALL}/steering/price", {"edits": ["missing/3:add:1"]}, 404, "missing"),
    (f"{SMALL}/steering/price", {"edits": ["99999:add:1"]}, 400, "Unknown expert 99999"),
    ("/api/runs/missing/steering/price", {"edits": ["3:add:1"]}, 404, "missing"),
    (f"{SMALL}/contrast", CONTRAST | {"a": {}}, 422, "Give documents or a kind."),
    (f"{SMALL}/contrast", CONTRAST | {"a": {"documents": ["red"]}}, 400, "Text A is too short"),
    (f"{SMALL}/contrast", CONTRAST | {"min_tokens": 5000}, 400, "No expert is active on 5000 tokens"),
    (f"{SMALL}/contrast", CONTRAST | {"tokens": 1_000_000}, 422, "tokens"),
    (f"{SMALL}/snapshot", {"kind": "expert", "expert": 10**6}, 404, "expert-not-found"),
    (f"{SMALL}/snapshot", {"kind": "expert", "expert": 10**20}, 404, "expert-not-found"),
    ("/api/runs/none/snapshot", {"kind": "expert", "expert": 3}, 404, "run-not-found"),
    ("/api/find", FIND | {"wanted": []}, 422, "at least one wanted or unwanted text"),
    ("/api/find", FIND | {"prompts": []}, 400, "prompts"),
    ("/api/find", FIND | {"runs": ["missing"]}, 404, "missing"),
    ("/api/find", FIND | {"prompts": ["the " * 2000]}, 413, "too long"),
    ("/api/circuits", CIRCUIT | {"runs": ["none"]}, 404, "Unknown run 'none'"),
    ("/api/circuits", CIRCUIT | {"text": ""}, 400, "text is empty"),
    ("/api/circuits", CIRCUIT | {"position": 12}, 400, "Unknown token position 12"),
    ("/api/circuits", CIRCUIT | {"target": {"kind": "token", "token": 999}}, 400, "Unknown target token 999"),
    ("/api/circuits", CIRCUIT | {"text": "a" * 600}, 413, "Shorten the text"),
    ("/api/circuits", CIRCUIT | {"nodes": 0}, 422, "nodes"),
    ("/api/circuits/effects", ablated("other", 1, 1), 400, "Unknown run 'other'"),
    ("/api/circuits/effects", ablated("small", 99, 1), 400, "token position 99"),
    ("/api/circuits/effects", ablated("small", 1, 10**6), 400, "active"),
]


@pytest.mark.parametrize(("path", "body", "status", "words"), COMPUTED)
def test_not_computable(live_client: TestClient, path: str, body: dict[str, Any], status: int, words: str) -> None:
    answer = live_client.post(path, json=body)
    if answer.status_code == 200:  # found after the first event of a stream
        assert "event: error" in answer.text and words in answer.text
    else:
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
        assert answer.json()["error"]["message"]
    assert live_client.post(f"{SMALL}/routing", json={"text": PROMPT}).status_code == 200
