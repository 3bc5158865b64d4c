"""The application as a whole: one shape of errors, headers, the front end, the API's description."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError

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


def test_every_response_has_the_security_headers(client: TestClient) -> None:
    for path in ("/", "/api/health", "/api/none", "/docs", "/api/runs/none"):
        headers = client.get(path, headers=PAGE).headers
        assert "script-src 'self';" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_pages_are_served_as_index_html_and_files_as_they_are(built: TestClient) -> None:
    for path in ("/", "/runs", "/runs/llama-3.2/experts/12"):
        answer = built.get(path, headers=PAGE)
        assert answer.text == "<!doctype html><title>built</title>"
        assert answer.headers["cache-control"] == "no-cache"
    script = built.get("/assets/main-1a2b.js")
    assert script.text == "'use strict';"
    assert "immutable" in script.headers["cache-control"]


def test_scripts_are_served_as_compressed_at_build(built: TestClient, tmp_path: Path) -> None:
    script = tmp_path / "dist/assets/main-1a2b.js"
    Path(f"{script}.gz").write_bytes(gzip.compress(script.read_bytes() + b"// built"))
    answer = built.get("/assets/main-1a2b.js")
    assert (answer.text, answer.headers["content-encoding"]) == ("'use strict';// built", "gzip")
    assert answer.headers["content-type"].startswith("text/javascript")
    again = built.get("/assets/main-1a2b.js", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    plain = built.get("/assets/main-1a2b.js", headers={"accept-encoding": "identity"})
    assert (plain.text, plain.headers["vary"]) == ("'use strict';", "Accept-Encoding")


@pytest.mark.parametrize("path", ["/api/none", "/assets/none.js", "/..%2fsecret", "/%2e%2e/secret", "/a%00b"])
def test_an_unknown_path_is_a_json_error(built: TestClient, path: str) -> None:
    answer = built.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not-found"


def test_a_wrong_method_is_a_json_error(client: TestClient) -> None:
    answer = client.post("/api/health")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method-not-allowed")
    assert answer.headers["allow"] == "GET"
    for path, methods in (
        ("/api/runs/first/experts/1", "GET, PATCH"),
        ("/api/runs/first/lists/1", "GET, PATCH, DELETE"),
        ("/api/access", "GET, POST, DELETE"),
    ):
        answer = client.request("TRACE", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, methods), path


def test_a_missing_frontend_is_an_error_message(client: TestClient) -> None:
    page = client.get("/", headers=PAGE)
    assert page.status_code == 503
    assert "make install" in page.text
    assert client.get("/").json()["error"]["message"].startswith("The front end has not been built yet")


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


def test_a_file_that_is_not_a_database_is_rejected_at_startup(tmp_path: Path) -> None:
    (tmp_path / "mxd.sqlite").write_text("not a database" * 100)
    with pytest.raises(UserError, match=r"Cannot open the database .*mxd\.sqlite"):
        create_app(Settings(data=tmp_path))


def test_docs_are_one_page_without_scripts(client: TestClient) -> None:
    page = client.get("/docs").text
    assert "<script" not in page
    assert "/api/runs/{run}/experts/{expert}/examples" in page
    assert "id='ExpertRow'" in page
