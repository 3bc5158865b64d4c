"""Arbitrary requests to every endpoint: a response within seconds, valid by the OpenAPI schema, never a 5xx."""

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mxd.backend.api.app import build_api, create_app
from mxd.backend.database.engine import opened
from mxd.backend.schemas.comparison import ContrastEvent
from mxd.backend.schemas.experts import AblationEvent
from mxd.backend.schemas.steering import SteeringEvent, StrengthSweepEvent
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.run import Run
from tests.helpers.databases import permuted_copy
from tests.helpers.fuzzing import tried
from tests.helpers.runs import World

EVENTS: TypeAdapter[Any] = TypeAdapter(SteeringEvent | StrengthSweepEvent | ContrastEvent | AblationEvent)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance]
TIMEOUT_SECONDS = 20
"""Seconds per response, on a shared machine."""
MOST_TOKENS = 4
ENDLESS = "/api/runs/{run}/events"
"""Streams that end only when their client leaves. They are requested only for runs that do not exist."""
SCHEMA = schemathesis.openapi.from_dict(build_api().openapi())
FOUND: list[Any] = list(SCHEMA.get_all_operations())
OPERATIONS: dict[str, Any] = {found.ok().label: found.ok() for found in FOUND}
"""Operations that schemathesis can read, as all of ours must be."""


@pytest.fixture(scope="module")
def hostile_client(fitted: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a server on two runs, that may write what it likes."""
    data = shutil.copytree(fitted.data, tmp_path_factory.mktemp("hostile") / "data")
    with opened(sqlite_url(data)) as database:
        permuted_copy(Run.load("small", data), "other", list(reversed(range(40))), database)
    with TestClient(create_app(Settings(data=data, frontend=data / "dist", device="cpu"))) as it:
        yield it


def plausible(case: Any, data: st.DataObject) -> Any:
    """Often name what there is: a made-up name alone would never get past the first look-up."""
    path = case.path_parameters or {}
    there = {"run": "small", "other": "other", "expert": data.draw(st.integers(0, 39)), "list_id": 1, "id": "abcdefg"}
    for name in path.keys() & there.keys():
        if data.draw(st.integers(0, 4)):
            path[name] = there[name]
    if case.operation.path == ENDLESS:
        path["run"] = "nobody"
    if isinstance(case.body, dict):
        _shorten(case.body, data)
    return case


def _shorten(body: dict[str, Any], data: st.DataObject) -> None:
    """Ask for few tokens, and often for runs that there are."""
    if "runs" in body and data.draw(st.booleans()):
        body["runs"] = ["small"]
    steering = body.get("steering", body)
    if isinstance(steering, dict) and isinstance(steering.get("sampling", {}), dict):
        sampling = steering.setdefault("sampling", {}) if "prompt" in steering or "edits" in steering else {}
        if isinstance(sampling.get("max_tokens", 1), int):
            sampling["max_tokens"] = min(sampling.get("max_tokens", MOST_TOKENS), MOST_TOKENS)


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_endpoint_answers_arbitrary_requests(label: str, hostile_client: TestClient) -> None:
    operation = OPERATIONS[label]

    @tried(4)
    @given(case=operation.as_strategy(), data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        case = plausible(case, data)
        wanted = case.as_transport_kwargs(base_url=str(hostile_client.base_url))
        wanted.pop("verify", None)
        assert not wanted.pop("cookies", None)
        started = time.monotonic()
        answer = hostile_client.request(**wanted)
        assert time.monotonic() - started < TIMEOUT_SECONDS
        streamed = answer.headers.get("content-type", "").startswith("text/event-stream")
        case.validate_response(answer, checks=CHECKS if streamed else [*CHECKS, response_schema_conformance])
        if streamed:
            events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
            assert events
            for event in events:
                EVENTS.validate_json(event)

    ask()
