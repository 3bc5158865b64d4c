"""Words that strangers choose: Host headers, cursors, labels with HTML in them, ids of sessions, searches."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from mxd.backend.errors import CursorError
from mxd.backend.queries.cursors import ExampleCursor, ExpertCursor
from mxd.backend.settings import host_name, is_ip_address
from tests.helpers.formats.damage import damaged
from tests.helpers.fuzzing import tried

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
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/json"


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


@tried(30)
@given(word=st.text(max_size=30) | st.sampled_from(['"', "NEAR(", "a AND", "*", "body:x", "'; DROP TABLE runs; --"]))
def test_arbitrary_searches_are_answered(client: TestClient, word: str) -> None:
    answer = client.get("/api/search", params={"runs": "first", "text": word})
    assert answer.status_code in (200, 422)
    assert client.get("/api/runs").status_code == 200


@tried(20)
@given(id=st.text(min_size=1, max_size=40))
def test_arbitrary_session_ids_are_found_or_rejected(client: TestClient, id: str) -> None:
    assert client.get(f"/api/sessions/{quote(id, safe='')}").status_code in (200, 404, 422)


@pytest.mark.parametrize("bad", ["\ud800", "\x00", "a\x00b"])
def test_lone_surrogates_and_nul_are_stored_or_rejected(own_client: TestClient, bad: str) -> None:
    for field in ("label", "note"):
        body = json.dumps({field: f"x{bad}y"})
        answer = own_client.patch(f"{EXPERTS}/3", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (204, 400, 422)
        assert own_client.get(f"{EXPERTS}/3").status_code == 200
