"""Labels from a real HTTP endpoint on the loopback: unusable answers, errors, cancelling and continuing."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling import llm_explainer as module
from mxd.trainer.analysis.labelling.features import BLOCK_SEQUENCES
from mxd.trainer.analysis.labelling.llm_explainer import Endpoint, EndpointError, ExplainResult, explain_experts
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.tables import AutomaticLabelRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import World

Answer = Callable[[str], tuple[int, str]]
"""Function from the last message to a status and a content."""


@pytest.fixture(autouse=True)
def retry_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Start an endpoint with the given answers and return its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, content = answer(request["messages"][-1]["content"])
                body = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(name="run")
def indexed_run(world: World, run: Run) -> Run:
    world.index(run, tokens=3_000, examples_per_bin=3, top_examples=20)
    return run


def usable_answer(question: str) -> tuple[int, str]:
    """Answer with a label, or with every second text."""
    if question.startswith("Description"):
        return 200, 'I say {"matching": [1, 3, 5]}.'
    return 200, '{"label": "letters\\n of words"}'


def explain(world: World, run: Run, url: str, **options: object) -> object:
    return explain_experts(run, world.database, "asked", Endpoint(url, "asked").ask, limit=3, **options)  # type: ignore[arg-type]


def test_labels_are_stored_with_scores_and_requested_once(
    world: World, run: Run, serve: Callable[[Answer], str]
) -> None:
    url = serve(usable_answer)
    explain(world, run, url)
    first = {label.expert for label in world.rows(AutomaticLabelRecord)}
    assert first
    explain(world, run, url)
    stored = world.rows(AutomaticLabelRecord)
    assert len(stored) > len(first)
    assert {label.label for label in stored} == {"letters of words"}
    assert all(label.labeller == "asked" and 0 <= label.balanced_accuracy <= 1 for label in stored)


@pytest.mark.parametrize(
    "answer",
    [
        lambda question: (200, "I would rather not."),
        lambda question: (200, '{"label": ""}'),
        lambda question: (200, '{"matching": [99]}') if question.startswith("D") else (200, '{"label": "a"}'),
        lambda question: (200, '{"matching": "all"}') if question.startswith("D") else (200, '{"label": "a"}'),
    ],
)
def test_an_unusable_answer_gives_no_label(
    world: World, run: Run, serve: Callable[[Answer], str], answer: Answer
) -> None:
    result = explain(world, run, serve(answer))
    assert isinstance(result, ExplainResult)
    assert result.failed > 0
    assert result.failed + result.skipped == 3
    assert world.rows(AutomaticLabelRecord) == []


@pytest.mark.parametrize("status", [401, 500])
def test_an_error_status_is_an_error(world: World, run: Run, serve: Callable[[Answer], str], status: int) -> None:
    with pytest.raises(EndpointError, match=str(status)):
        explain(world, run, serve(lambda question: (status, "no")))
    assert world.rows(AutomaticLabelRecord) == []


def test_labels_survive_cancelling(world: World, run: Run, serve: Callable[[Answer], str]) -> None:
    url = serve(usable_answer)
    with pytest.raises(UserError, match="saved"):
        explain(world, run, url, callbacks=Callbacks(is_cancelled=lambda: bool(world.rows(AutomaticLabelRecord))))
    assert len(world.rows(AutomaticLabelRecord)) == 1
    explain(world, run, url)
    assert len(world.rows(AutomaticLabelRecord)) > 1


def test_no_text_is_of_a_block_with_explained_texts(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_marked_text", lambda _session, _run, _tokenizer, sequence, _position: sequence)
    with Session(world.database) as session:
        record = find_record(session, run.name)
        for expert in range(record.num_experts):
            examples = module.read_label_examples(session, record, expert, run.tokenizer, 14, 6)
            tested = [int(number) // BLOCK_SEQUENCES % 2 for number in (*examples.active, *examples.inactive)]
            assert all(tested) and not any(int(number) // BLOCK_SEQUENCES % 2 for number in examples.explained)
