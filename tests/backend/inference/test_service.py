"""Inference over HTTP and in its worker: streams, limits, clients that leave, memory, endless chat templates."""

import asyncio
import json
import math
import shutil
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import TypeAdapter
from starlette.types import Message

from mxd.backend.api.app import create_app
from mxd.backend.api.dependencies import Services
from mxd.backend.api.routes.routing import route_text
from mxd.backend.errors import BusyError
from mxd.backend.inference import service, worker
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.inference.service import InferenceService, JobContext, max_rows, prepare_generation
from mxd.backend.inference.worker import Delivery, GenerationRequest, ModelWorker
from mxd.backend.schemas.base import to_json_bytes
from mxd.backend.schemas.steering import SteeringEvent
from mxd.backend.settings import Settings
from mxd.trainer.analysis import effects
from mxd.trainer.analysis.circuits import tracing
from mxd.trainer.config.layer import WEIGHTS_FILE
from mxd.trainer.config.steering import Edit, Sampling, SteeringConfig, StrengthSweepConfig
from mxd.trainer.inference import routing
from mxd.trainer.inference.generation import RowBatch, SequenceState
from mxd.trainer.inference.results import StrengthSweepProgressEvent, TokenEvent
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.inference.strength_sweep import StrengthSweep
from mxd.trainer.language_model.kv_cache import GrowableLayer
from mxd.trainer.language_model.model import LanguageModel, needed_bytes
from mxd.trainer.language_model.untrusted import template_process
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.runs import ENDLESS_TEMPLATE, World

RUN = "/api/runs/small"
PROMPT = "the old fox"
GREEDY = {"max_tokens": 6, "temperature": 0}
EDIT = {"expert": 3, "mode": "add", "strength": 30.0}


def events(client: TestClient, **request: Any) -> list[tuple[str, dict[str, Any]]]:
    """Names and data of all events of a generation."""
    body = {"prompt": PROMPT, "sampling": GREEDY, **request}
    with client.stream("POST", f"{RUN}/steering", json=body) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = "".join(answer.iter_text()).removesuffix("\n\n").split("\n\n")
    parts = [block.split("\n") for block in blocks]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def test_a_language_model_is_loaded_once(fitted: World, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Mock(side_effect=LanguageModel.load)
    monkeypatch.setattr(LanguageModel, "load", load)
    with TestClient(create_app(Settings(data=fitted.data, device="cpu"))) as client, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: client.post(f"{RUN}/routing", json={"text": PROMPT}), range(4)))
        assert [answer.status_code for answer in answers] == [200] * 4, answers[0].text
    assert load.call_count == 1


def test_least_recently_used_language_models_are_unloaded(fitted: World, tmp_path: Path) -> None:
    """With memory for two of three: a request for the third unloads the one that was used least recently."""
    data = tmp_path / "data"
    shutil.copytree(fitted.data / "runs", data / "runs")
    source = Path(Run.load("small", data).config.language_model)
    for name in ("second", "third"):
        run = shutil.copytree(data / "runs" / "small", data / "runs" / name)
        own = shutil.copytree(source, tmp_path / name)
        values = json.loads((run / "run.json").read_text()) | {"name": name, "language_model": str(own)}
        (run / "run.json").write_text(json.dumps(values))
    size = needed_bytes(str(source), "cpu")
    assert size == LanguageModel.load(str(source), "cpu").num_bytes
    limits = Settings(data=data, device="cpu", language_model_gb=2.5 * size / 1e9)
    with closing(InferenceService(limits, RunLoader(data, 8))) as service:

        async def use(name: str) -> set[str]:
            await service.submit([name], route_text, PROMPT)
            return {Path(model.source).name for model in service.language_models()}

        async def walk() -> list[set[str]]:
            return [await use(name) for name in ("small", "second", "small", "third", "small", "second")]

        seen = asyncio.run(walk())
    first, second, third = source.name, "second", "third"
    assert seen == [{first}, {first, second}, {first, second}, {first, third}, {first, third}, {first, second}]


def test_each_token_of_both_variants_is_sent_once(live_client: TestClient, fitted: World) -> None:
    seen = events(live_client, edits=[EDIT])
    assert [name for name, _ in seen] == ["start", *["token"] * (len(seen) - 2), "done"]
    assert all(data["event"] == name for name, data in seen)
    for _, data in seen:
        TypeAdapter(SteeringEvent).validate_python(data)
    run = Run.load("small", fitted.data)
    config = SteeringConfig(prompt=PROMPT, sampling=Sampling(max_tokens=6, temperature=0))
    plain = steer(LanguageModel.load(run.config.language_model, "cpu"), run, config)
    default = [step.text for step in plain if isinstance(step, TokenEvent) and step.variant == "baseline"]
    assert [data["text"] for _, data in seen if data.get("variant") == "baseline"] == default
    for arm in ("baseline", "steered"):
        positions = [data["position"] for _, data in seen if data.get("variant") == arm]
        assert positions == list(range(len(positions)))
    (loaded,) = live_client.get("/api/health").json()["language_models"]
    assert (loaded["device"], loaded["dtype"]) == ("cpu", "float32")


@pytest.mark.parametrize("seed", [2**53 - 1, 18_446_688_736_430])
def test_the_largest_seeds_reproduce_their_texts(live_client: TestClient, seed: int) -> None:
    sampling = {"max_tokens": 6, "temperature": 1.0, "seed": seed}
    first, again = (events(live_client, sampling=sampling)[1:-1] for _ in range(2))
    assert first == again
    assert first[0][0] == "token"


@pytest.mark.parametrize("path", ["steering", "steering/sweep"])
def test_a_queued_request_is_told_its_position(fitted: World, path: str) -> None:
    with TestClient(create_app(Settings(data=fitted.data, device="cpu", batch_rows=4))) as client:
        body: dict[str, Any] = {"prompt": PROMPT, "sampling": {"max_tokens": 60, "temperature": 0}}
        with client.stream("POST", f"{RUN}/steering", json=body) as running:
            lines = running.iter_lines()
            next(lines)
            answer = client.post(f"{RUN}/{path}", json={"prompt": PROMPT, "edits": [EDIT], "sampling": GREEDY})
    assert '"queue_position":' in answer.text
    assert "event: error" not in answer.text
    assert "event: done" in answer.text


def test_a_sweep_has_a_control_from_the_index(live_client: TestClient) -> None:
    body = {"prompt": PROMPT, "edits": [EDIT], "sampling": GREEDY, "strengths": [0, 2]}
    done = json.loads(live_client.post(f"{RUN}/steering/sweep", json=body).text.rsplit("data: ", 1)[1])
    assert live_client.get(f"{RUN}/experts/{done['control']}").json()["row"]["active_tokens"] > 0


def test_nan_is_sent_as_null(live_client: TestClient) -> None:
    strong = [{"expert": 3, "mode": "set", "strength": 1000.0}] * 8
    for mode in ("residual", "replace"):
        seen = events(live_client, edits=strong, mode=mode)
        assert seen[-1][0] == "done"
    assert to_json_bytes({"kl": math.nan, "loss": [math.inf, 1.5]}) == b'{"kl":null,"loss":[null,1.5]}'


def test_prompts_above_the_servers_limit_are_rejected(fitted: World) -> None:
    with TestClient(create_app(Settings(data=fitted.data, device="cpu", prompt_tokens=8))) as client:
        answer = client.post(f"{RUN}/routing", json={"text": "eight or more"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "prompt-too-long")
        assert client.post(f"{RUN}/routing", json={"text": "seven."}).json()["max_tokens"] == 8


@pytest.fixture
def engine(fitted: World) -> Iterator[InferenceService]:
    """An inference service that accepts two requests at a time."""
    services = create_app(Settings(data=fitted.data, device="cpu", max_inference_requests=2)).state.services
    yield services.inference
    services.inference.close()
    services.database.dispose()


def generation(engine: InferenceService, max_tokens: int = 60) -> AsyncGenerator[object, None]:
    sampling = Sampling(max_tokens=max_tokens, temperature=0)
    return engine.generate(["small"], SteeringConfig(prompt=PROMPT, sampling=sampling), {})


def test_requests_above_the_limit_are_rejected(engine: InferenceService) -> None:
    async def crowd() -> None:
        first, second, third = (generation(engine) for _ in range(3))
        await anext(first)
        await anext(second)
        with pytest.raises(BusyError):
            await anext(third)
        with pytest.raises(BusyError):
            await engine.submit(["small"], route_text, PROMPT)
        await first.aclose()
        await engine.submit(["small"], route_text, PROMPT)
        await second.aclose()

    asyncio.run(crowd())


def test_a_slot_is_free_when_its_generation_ends_even_if_nobody_reads(engine: InferenceService) -> None:
    async def unread() -> None:
        streams = [generation(engine, max_tokens=4) for _ in range(2)]
        for stream in streams:
            await anext(stream)
        async with asyncio.timeout(30):
            while engine.num_active:
                await asyncio.sleep(0.01)
        await engine.submit(["small"], route_text, PROMPT)
        for stream in streams:
            await stream.aclose()
        assert engine.num_active == 0

    asyncio.run(unread())


def test_damaged_weights_are_a_server_error(fitted: World, tmp_path: Path) -> None:
    data = shutil.copytree(fitted.data, tmp_path / "data")
    weights = data / "runs" / "small" / WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:-100])
    with TestClient(create_app(Settings(data=data, device="cpu"))) as client:
        for path, body in (("routing", {"text": PROMPT}), ("steering", {"prompt": PROMPT})):
            answer = client.post(f"{RUN}/{path}", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "run-unusable"), answer.text
            assert answer.json()["error"]["message"].startswith("Run 'small' cannot be used: ")


def test_generations_take_turns(engine: InferenceService) -> None:
    finished: list[int] = []

    async def read(max_tokens: int) -> None:
        async for _ in generation(engine, max_tokens):
            pass
        finished.append(max_tokens)

    async def take_turns() -> None:
        await asyncio.gather(read(60), read(3))

    asyncio.run(take_turns())
    assert finished == [3, 60]


class Exhausted:
    """Raises an error while it holds a tensor, and records whether the tensor is gone when cached memory is freed."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.is_met = False
        self.gone: list[bool] = []
        patched.setattr("mxd.trainer.utils.devices.free_cached_memory", lambda: self.gone.append(self.held() is None))

    def __call__(self, *_words: Any) -> Any:
        self.is_met, tensor = True, torch.ones(3)
        self.held = weakref.ref(tensor)
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("place", ["step", "join", "fork"])
def test_out_of_memory_fails_only_one_request(
    live_client: TestClient, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    alone = events(live_client, edits=[EDIT])
    original, exhausted = getattr(RowBatch, place), Exhausted(monkeypatch)

    def fails_once(batch: RowBatch, *words: Any) -> Any:
        return original(batch, *words) if exhausted.is_met else exhausted()

    monkeypatch.setattr(RowBatch, place, fails_once)
    answer = live_client.post(f"{RUN}/steering", json={"prompt": PROMPT, "sampling": GREEDY, "edits": [EDIT]})
    assert "out of memory for this request. Shorten the prompt" in answer.text
    assert "out-of-memory" in answer.text
    again = events(live_client, edits=[EDIT])
    assert exhausted.gone == [True]
    assert [data for name, data in again if name == "token"] == [data for name, data in alone if name == "token"]


def test_a_step_that_runs_out_of_memory_is_repeated(fitted: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some blocks have cached the newest token already; the remaining rows must not cache it twice."""
    language_model = LanguageModel.load(Run.load("small", fitted.data).config.language_model, "cpu")
    batches = [RowBatch(language_model), RowBatch(language_model)]
    for batch in batches:
        batch.join([SequenceState([5, 6, 7])], [(0, SequenceState([5, 6, 7, 8]))])
    with monkeypatch.context() as patched:
        update = Mock(side_effect=[DEFAULT, DEFAULT, MemoryError], wraps=GrowableLayer.update)
        patched.setattr(GrowableLayer, "update", lambda layer, *words, **settings: update(layer, *words, **settings))
        with pytest.raises(MemoryError):
            batches[0].step()
    actual, wanted = (batch.step().logits_BV for batch in batches)
    assert torch.equal(actual, wanted)


def test_routing_out_of_memory(live_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        exhausted = Exhausted(patched)
        patched.setattr("mxd.trainer.inference.routing.route_together", exhausted)
        answer = live_client.post(f"{RUN}/routing", json={"text": PROMPT})
    assert exhausted.gone == [True]
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "out-of-memory")
    assert live_client.post(f"{RUN}/routing", json={"text": PROMPT}).status_code == 200


CHATS = 24
"""More than the server has threads for waiting."""
LIMIT_SECONDS = 1.0
WAIT_SECONDS = 3.0
TURNS = [{"role": "user", "text": "hello"}]
TIMEOUT_SECONDS = 20.0
"""Seconds per response, on a shared machine."""


@pytest.fixture
def client(fitted: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
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


MAX_ROWS = 4
WORKER_SECONDS = 30.0


@pytest.fixture
def small_run(fitted: World) -> Run:
    return Run.load("small", fitted.data)


def steering_request(small_run: Run, ended: Callable[[], None]) -> GenerationRequest:
    """A request for one pair of three tokens; ``ended`` is called after its last delivery."""
    config = SteeringConfig(prompt="the old fox", sampling=Sampling(max_tokens=3, temperature=0))

    def prepare(language_model: LanguageModel) -> Steering | StrengthSweep:
        return prepare_generation(JobContext(language_model, [small_run], 64, NO_CALLBACKS), config, {})

    def deliver(delivery: Delivery) -> None:
        assert not isinstance(delivery, BaseException), delivery
        if delivery is None:
            ended()

    return GenerationRequest(prepare, max_rows(config), deliver)


def generate_together(small_run: Run, model_worker: ModelWorker, number: int) -> None:
    """Generate ``number`` texts in one batch and wait for the end of the batch's last turn."""
    model_worker.call(lambda language_model: None).result(WORKER_SECONDS)  # loads the language model
    hold, ended = Event(), [Event() for _ in range(number)]
    held = model_worker.call(lambda language_model: hold.wait(WORKER_SECONDS))
    for one in ended:
        model_worker.generate(steering_request(small_run, one.set))
    hold.set()
    assert held.result(WORKER_SECONDS)
    assert all(one.wait(WORKER_SECONDS) for one in ended)
    model_worker.call(lambda language_model: None).result(WORKER_SECONDS)


def test_memory_is_returned_after_a_large_batch_only(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    trim = Mock()
    monkeypatch.setattr(worker, "trim_freed_memory", trim)
    rows = steering_request(small_run, lambda: None).rows
    with closing(ModelWorker(small_run.language_model_source, "cpu", MAX_ROWS * rows)) as model_worker:
        for number, calls in ((1, 0), (MAX_ROWS, 1), (1, 1)):
            generate_together(small_run, model_worker, number)
            assert trim.call_count == calls


def test_a_sweep_reports_each_strength_and_stops_between_two(small_run: Run) -> None:
    edits = (Edit(expert=1, mode="add", strength=1.0),)
    config = StrengthSweepConfig(prompt="the old fox", edits=edits, strengths=(0, 1, 2))
    context = JobContext(LanguageModel.load(small_run.language_model_source, "cpu"), [small_run], 64, NO_CALLBACKS)
    deliveries: list[Delivery] = []

    def deliver(delivery: Delivery) -> None:
        deliveries.append(delivery)
        request.cancelled.set()

    request = GenerationRequest(lambda _: prepare_generation(context, config, {}), max_rows(config), deliver)
    with closing(ModelWorker(small_run.language_model_source, "cpu", MAX_ROWS)) as model_worker:
        model_worker.generate(request)
        generate_together(small_run, model_worker, 1)  # runs after the sweep has left the batch
    (only,) = deliveries
    assert isinstance(only, tuple)
    (progress,) = only
    assert isinstance(progress, StrengthSweepProgressEvent)
    assert [each.strength for each in progress.texts] == [0.0]


def test_closing_ends_the_requests_that_wait_and_run(small_run: Run) -> None:
    model_worker = ModelWorker(small_run.language_model_source, "cpu", MAX_ROWS)
    model_worker.call(lambda language_model: None).result(WORKER_SECONDS)
    hold, held, deliveries = Event(), Event(), [[], []]  # type: tuple[Event, Event, list[list[Delivery]]]

    def wait(_language_model: LanguageModel) -> None:
        held.set()
        hold.wait(WORKER_SECONDS)

    calls = [model_worker.call(wait), model_worker.call(lambda _: None)]
    for received in deliveries:
        request = steering_request(small_run, lambda: None)
        request.deliver = received.append
        model_worker.generate(request)
    assert held.wait(WORKER_SECONDS)
    model_worker.close()
    hold.set()
    calls[0].result(WORKER_SECONDS)
    assert calls[1].cancelled()
    for (answer,) in deliveries:
        assert isinstance(answer, BusyError) and "stopping" in str(answer)
    with pytest.raises(BusyError, match="stopping"):
        model_worker.call(lambda _: None)
    with pytest.raises(BusyError, match="stopping"):
        model_worker.generate(steering_request(small_run, lambda: None))


class Asking:
    """One request of a client that can leave."""

    def __init__(self, app: FastAPI, path: str, body: dict[str, Any], accept: str = "*/*") -> None:
        self.left = asyncio.Event()
        self.sent: list[Message] = []
        self._parts: list[Message] = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"accept", accept.encode())]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        more = {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http"}
        self.answered = asyncio.ensure_future(app({**scope, **more, "root_path": ""}, self._receive, self._send))

    async def _receive(self) -> Message:
        if self._parts:
            return self._parts.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def status(self) -> int:
        await asyncio.wait_for(self.answered, 20)
        return int(self.sent[0]["status"])


@pytest.fixture
def app(fitted: World) -> Iterator[FastAPI]:
    it = create_app(Settings(data=fitted.data, device="cpu"))
    yield it
    services: Services = it.state.services
    services.inference.close()
    services.database.dispose()


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("routing", {}),
        ("routing/predictions", {}),
        ("routing/effects", {"position": 1}),
        ("routing", {"others": ["small"]}),
    ],
)
def test_superseded_routings_are_skipped(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, path: str, more: dict[str, Any]
) -> None:
    begun, go_on, texts = threading.Event(), threading.Event(), []

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(language_model: Any, run: Any, ids: list[int], *words: Any) -> Any:
            texts.append(language_model.tokenizer.decode(ids[1:]))
            begun.set()
            assert go_on.wait(20)
            return original(language_model, run, ids, *words)

        return noted

    for module, name in ((routing, "route_together"), (routing, "predict"), (effects, "direct_effects")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))

    async def type_quickly() -> None:
        first = Asking(app, f"{RUN}/routing", {"text": PROMPT})
        assert await asyncio.to_thread(begun.wait, 20)
        superseded = [Asking(app, f"{RUN}/{path}", {"text": f"{PROMPT} {i}", **more}) for i in range(3)]
        engine = app.state.services.inference
        while engine.num_active < 4:
            await asyncio.sleep(0.01)
        for asking in superseded:
            asking.left.set()
        assert [await asking.status() for asking in superseded] == [499] * 3
        assert engine.num_active == 1
        newest = Asking(app, f"{RUN}/routing", {"text": "the old dog"})
        go_on.set()
        assert [await first.status(), await newest.status()] == [200, 200]

    asyncio.run(type_quickly())
    assert texts == ["the old fox", "the old dog"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_disconnecting_cancels_tracing(accept: str, app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(_lm: Any, _runs: Any, _config: Any, callbacks: Any, _ids: Any) -> None:
        begun.set()
        try:
            for _ in range(2000):
                callbacks.check_cancelled()
                time.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr(tracing, "trace", endless)

    async def leave() -> None:
        asking = Asking(app, "/api/circuits", {"runs": ["small"], "text": "the old fox"}, accept)
        assert await asyncio.to_thread(begun.wait, 20)
        asking.left.set()
        assert await asking.status() == 499
        assert await asyncio.to_thread(ended.wait, 10)

    asyncio.run(leave())
