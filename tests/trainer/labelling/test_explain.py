"""Labels from an endpoint: a real server on the loopback, answers that are wrong, stopping and going on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.runs import World
from trainer.config import IndexConfig
from trainer.errors import UserError
from trainer.indexing import build_index
from trainer.labelling import endpoint as endpoints
from trainer.labelling.endpoint import AnswerError, Endpoint, EndpointError, json_object
from trainer.labelling.explain import explain_experts
from trainer.run import Run
from trainer.tables import AutomaticLabelRecord
from trainer.train import train

Answer = Callable[[str], tuple[int, str]]
"""From the last message to a status and a content."""


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "SECONDS_BETWEEN", 0.0)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Starts an endpoint that answers as told; gives its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, content = answer(asked["messages"][-1]["content"])
                body = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def run(world: World) -> Run:
    train(world.config(), world.data, world.store, world.language_model)
    run = Run.load("small", world.data)
    build_index(run, IndexConfig(text=world.text, tokens=3_000), world.language_model, world.store)
    return run


def labels(world: World) -> list[AutomaticLabelRecord]:
    with Session(world.store) as session:
        return list(session.scalars(select(AutomaticLabelRecord)))


def sensible(question: str) -> tuple[int, str]:
    """A label, and every second text."""
    if question.startswith("Description"):
        return 200, 'I say {"fitting": [1, 3, 5]}.'
    return 200, '{"label": "letters\\n of words"}'


def explain(world: World, run: Run, url: str, **how: object) -> object:
    return explain_experts(run, world.store, "asked", Endpoint(url, "asked").ask, limit=3, **how)  # type: ignore[arg-type]


def test_labels_are_kept_with_scores_and_not_asked_for_again(
    world: World, run: Run, serve: Callable[[Answer], str]
) -> None:
    url = serve(sensible)
    explain(world, run, url)
    first = {label.expert for label in labels(world)}
    assert first
    explain(world, run, url)
    stored = labels(world)
    assert len(stored) > len(first)
    assert {label.label for label in stored} == {"letters of words"}
    assert all(label.maker == "asked" and 0 <= label.balanced_accuracy <= 1 for label in stored)


@pytest.mark.parametrize(
    "answer",
    [
        lambda question: (200, "I would rather not."),
        lambda question: (200, '{"label": ""}'),
        lambda question: (200, '{"fitting": [99]}') if question.startswith("D") else (200, '{"label": "a"}'),
        lambda question: (200, '{"fitting": "all"}') if question.startswith("D") else (200, '{"label": "a"}'),
    ],
)
def test_a_useless_answer_is_no_score(world: World, run: Run, serve: Callable[[Answer], str], answer: Answer) -> None:
    result = explain(world, run, serve(answer))
    assert getattr(result, "failed", 0) == 3
    assert labels(world) == []


@pytest.mark.parametrize("status", [401, 500])
def test_a_refusal_is_an_error(world: World, run: Run, serve: Callable[[Answer], str], status: int) -> None:
    with pytest.raises(EndpointError, match=str(status)):
        explain(world, run, serve(lambda question: (status, "no")))
    assert labels(world) == []


def test_nobody_listens(world: World, run: Run) -> None:
    with pytest.raises(EndpointError, match="gave no answer"):
        explain(world, run, "http://127.0.0.1:9")


def test_stopped_it_keeps_what_is_done(world: World, run: Run, serve: Callable[[Answer], str]) -> None:
    url = serve(sensible)
    with pytest.raises(UserError, match="kept"):
        explain(world, run, url, should_stop=lambda: bool(labels(world)))
    assert len(labels(world)) == 1
    explain(world, run, url)
    assert len(labels(world)) > 1


def test_json_among_words() -> None:
    assert json_object('Sure: {"a": [1]} there') == {"a": [1]}
    for text in ("none", "{broken", "[1]"):
        with pytest.raises(AnswerError):
            json_object(text)
