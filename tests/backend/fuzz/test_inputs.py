"""Config files, words and bytes that strangers choose: Host headers, cursors, labels, ids, searches, requests."""

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from mxd.backend.cli.main import run
from mxd.backend.errors import CursorError
from mxd.backend.queries.examples import ExampleCursor, ExpertCursor
from mxd.backend.settings import host_name, is_ip_address
from tests.helpers.fuzzing import damaged, tried
from tests.helpers.processes import server
from tests.helpers.servers import raw_http

EXPERTS = "/api/runs/first/experts"
SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
CURSOR = ExpertCursor(sort="density", order="desc", value=0.5, expert=7).encode().encode()


@tried(60)
@given(header=st.text(max_size=60) | st.sampled_from(["[::1]:8000", "127.0.0.1", "evil.example:80", "[", "a:b:c"]))
def test_arbitrary_host_headers_are_parsed(header: str) -> None:
    name = host_name(header)
    assert name == name.lower()
    assert not is_ip_address(name) or name in header.lower()


@tried(20)
@given(header=st.binary(max_size=40).filter(lambda it: not {0, 10, 13} & set(it)))
def test_unknown_hosts_are_rejected(client: TestClient, header: bytes) -> None:
    answer = client.get("/api/runs", headers=[(b"host", b"x" + header)])
    assert (answer.status_code, answer.headers["content-type"]) == (421, "application/json")


@tried(60)
@given(word=damaged(CURSOR) | st.binary(max_size=40) | st.text(max_size=30).map(str.encode))
def test_arbitrary_cursors_are_parsed_or_rejected(word: bytes) -> None:
    for kind in (ExpertCursor, ExampleCursor):
        try:
            assert kind.decode(word.decode("utf-8", "replace")).encode()
        except CursorError as error:
            assert "\n" not in str(error)


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)


@tried(30)
@given(values=st.fixed_dictionaries({}, optional=dict.fromkeys(("sort", "order", "value", "expert", "rank"), VALUE)))
def test_pages_of_arbitrary_cursors_are_served_or_rejected(client: TestClient, values: dict[str, Any]) -> None:
    whole = {"sort": "density", "order": "desc", "value": 0.1, "expert": 3, **values}
    word = base64.urlsafe_b64encode(json.dumps(whole).encode()).decode().rstrip("=")
    answer = client.get(EXPERTS, params={"cursor": word, "sort": "density", "order": "desc"})
    assert answer.status_code in (200, 400, 422)


@pytest.mark.parametrize("bad", ["\ud800", "\x00", "a\x00b"])
def test_lone_surrogates_and_nul_are_stored_or_rejected(own_client: TestClient, bad: str) -> None:
    for field in ("label", "note"):
        body = json.dumps({field: f"x{bad}y"})
        answer = own_client.patch(f"{EXPERTS}/3", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (204, 400, 422)
        assert own_client.get(f"{EXPERTS}/3").status_code == 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["data", "database", "json", "as_json", "config", "tokens", "k", "text", "runs", "device", "port"]
)
JSON = b'{"json": true, "tokens": [1, {"a": null}], "device": "cpu"}'
TOML = b'json = true\ntokens = "5M"\n[table]\nname = [1, 2.5, "three"]\ndate = 2026-11-21T10:00:00Z\n'
ARGUMENTS = {"runs": (), "evaluate": ("nobody", "--dataset", "none.txt"), "report": (), "doctor": ("--port", "0")}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_damaged_config_files(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    values = (st.dictionaries(NAMES | st.text(max_size=8), VALUES, max_size=3) | VALUES).map(json.dumps)
    contents = {"a.json": values.map(str.encode) | damaged(JSON), "a.toml": damaged(TOML) | st.binary(max_size=60)}

    @tried(20)
    @given(name=st.sampled_from(sorted(contents)), data=st.data())
    def use(name: str, data: st.DataObject) -> None:
        (tmp_path / name).write_bytes(data.draw(contents[name]))
        code, said = run([command, *ARGUMENTS[command], "--config", name]), capsys.readouterr().err
        assert code in (0, 1, 2)
        assert code != 2 or (said.startswith("mxd: ") and said.count("\n") == 1)

    use()


@pytest.mark.parametrize("content", ["[" * 200_000, '{"a":' * 100_000, '{"a": ' + "9" * 10_000 + "}"])
@pytest.mark.parametrize("name", ["a.toml", "a.json"])
def test_deep_and_huge_files(name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(content if name.endswith("json") else f"a = {content}")
    assert run(["runs", "--config", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert "Cannot read the config file" in said
    assert len(said) < 1000


REQUESTS = (
    raw_http.request("GET", "/api/runs/first/experts?sort=density"),
    f"POST /api/access {raw_http.HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\n{{'a':\r\n0\r\nX: y\r\n\r\n".encode(),
    2 * raw_http.request("GET", "/healthz"),
)
SECONDS = 0.05


def test_damaged_requests_are_answered_or_disconnected(made_up: Path) -> None:
    @tried(20)
    @given(data=st.data())
    def send(data: st.DataObject) -> None:
        sent = data.draw(st.one_of(damaged(data.draw(st.sampled_from(REQUESTS))), st.binary()))
        with raw_http.connect(url) as it:
            it.settimeout(SECONDS)
            with suppress(ConnectionError, TimeoutError):
                it.sendall(sent)
                answer = it.recv(65_536)
                assert not answer.startswith(b"HTTP/1.1 5"), (sent, answer)

    with server(made_up) as (url, _):
        send()
        assert raw_http.ask(url, "/healthz") == 200
