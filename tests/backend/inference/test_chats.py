"""Chat templates that never end: only chats wait for them, and none waits longer than its limit."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.inference import service
from mxd.backend.settings import Settings
from mxd.trainer.language_model.untrusted import template_process
from tests.helpers.language_models import ENDLESS_TEMPLATE
from tests.helpers.runs import World

RUN = "/api/runs/small"
CHATS = 24
"""More than the server has threads for waiting."""
LIMIT_SECONDS = 1.0
WAIT_SECONDS = 3.0
TURNS = [{"role": "user", "text": "hello"}]
TIMEOUT_SECONDS = 20.0
"""Seconds per response, on a shared machine."""


@pytest.fixture
def client(fitted: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of a server on a run whose chat template never ends."""
    data = shutil.copytree(fitted.data, tmp_path / "data")
    (data / "runs" / "small" / "tokenizer" / "chat_template.jinja").write_text(ENDLESS_TEMPLATE)
    monkeypatch.setattr(template_process, "LIMIT_SECONDS", LIMIT_SECONDS)
    monkeypatch.setattr(service, "WAIT_SECONDS", WAIT_SECONDS)
    template_process.TEMPLATES.close()  # the next process has the limit above
    with TestClient(create_app(Settings(data=data, device="cpu"))) as it:
        yield it
    template_process.TEMPLATES.close()


def test_endless_chat_templates_hold_no_thread_of_others(client: TestClient) -> None:
    paths = [f"{RUN}/routing", f"{RUN}/steering", "/v1/chat/completions"]

    def chat(number: int) -> tuple[int, bool, float]:
        path = paths[number % len(paths)]
        body = {"text": "", "turns": TURNS} if path.endswith("routing") else {"prompt": "", "turns": TURNS}
        if path.startswith("/v1"):
            body = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}
        started = time.monotonic()
        answer = client.post(path, json=body)
        return answer.status_code, "retry-after" in answer.headers, time.monotonic() - started

    assert client.post(f"{RUN}/routing", json={"text": "the fox"}).status_code == 200
    with ThreadPoolExecutor(CHATS) as pool:
        found = pool.map(chat, range(CHATS))
        time.sleep(LIMIT_SECONDS / 2)
        started = time.monotonic()
        assert client.post(f"{RUN}/routing", json={"text": "the fox"}).status_code == 200
        assert client.get("/api/runs").status_code == 200
        others = time.monotonic() - started
        answers = list(found)
    assert others < WAIT_SECONDS
    assert {(status, has_time) for status, has_time, _ in answers} == {(400, False), (503, True)}
    assert max(seconds for *_, seconds in answers) < TIMEOUT_SECONDS
