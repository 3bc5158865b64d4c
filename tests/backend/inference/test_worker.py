"""The memory that a worker returns after a large batch, sweeps, and the end of a worker."""

from collections.abc import Callable
from threading import Event

import pytest

from mxd.backend.errors import BusyError
from mxd.backend.inference import worker
from mxd.backend.inference.jobs import JobContext, max_rows, prepare_generation
from mxd.backend.inference.worker import Delivery, Generation, GenerationRequest, ModelWorker
from mxd.trainer.config import Edit, Sampling, SteeringConfig, StrengthSweepConfig
from mxd.trainer.inference.results import StrengthSweepProgressEvent
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.helpers.runs import World

MAX_ROWS = 4
TIMEOUT_SECONDS = 30.0


@pytest.fixture
def run(fitted: World) -> Run:
    return Run.load("small", fitted.data)


def steering_request(run: Run, ended: Callable[[], None]) -> GenerationRequest:
    """A request for one pair of three tokens; ``ended`` is called after its last delivery."""
    config = SteeringConfig(prompt="the old fox", sampling=Sampling(max_tokens=3, temperature=0))

    def prepare(language_model: LanguageModel) -> Generation:
        return prepare_generation(JobContext(language_model, [run], 64, Event()), config, {})

    def deliver(delivery: Delivery) -> None:
        assert not isinstance(delivery, BaseException), delivery
        if delivery is None:
            ended()

    return GenerationRequest(prepare, max_rows(config), deliver)


def generate_together(run: Run, model_worker: ModelWorker, number: int) -> None:
    """Generate ``number`` texts in one batch and wait for the end of the batch's last turn."""
    model_worker.call(lambda language_model: None).result(TIMEOUT_SECONDS)  # loads the language model
    hold, ended = Event(), [Event() for _ in range(number)]
    held = model_worker.call(lambda language_model: hold.wait(TIMEOUT_SECONDS))
    for one in ended:
        model_worker.generate(steering_request(run, one.set))
    hold.set()
    assert held.result(TIMEOUT_SECONDS)
    assert all(one.wait(TIMEOUT_SECONDS) for one in ended)
    model_worker.call(lambda language_model: None).result(TIMEOUT_SECONDS)


def test_memory_is_returned_after_a_large_batch_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(worker, "trim_freed_memory", lambda: calls.append(1))
    rows = steering_request(run, lambda: None).rows
    model_worker = ModelWorker(run.language_model_source, "cpu", MAX_ROWS * rows)
    try:
        generate_together(run, model_worker, 1)
        assert calls == []
        generate_together(run, model_worker, MAX_ROWS)
        assert calls == [1]
        generate_together(run, model_worker, 1)
        assert calls == [1]
    finally:
        model_worker.close()


def test_a_sweep_reports_each_strength_and_stops_between_two(run: Run) -> None:
    config = StrengthSweepConfig(
        prompt="the old fox", edits=(Edit(expert=1, mode="add", strength=1.0),), strengths=(0, 1, 2)
    )
    context, deliveries = JobContext(LanguageModel.load(run.language_model_source, "cpu"), [run], 64, Event()), []

    def deliver(delivery: Delivery) -> None:
        deliveries.append(delivery)
        request.cancelled.set()

    request = GenerationRequest(lambda _: prepare_generation(context, config, {}), max_rows(config), deliver)
    model_worker = ModelWorker(run.language_model_source, "cpu", MAX_ROWS)
    try:
        model_worker.generate(request)
        generate_together(run, model_worker, 1)  # runs after the sweep has left the batch
    finally:
        model_worker.close()
    (only,) = deliveries
    assert isinstance(only, tuple)
    (progress,) = only
    assert isinstance(progress, StrengthSweepProgressEvent)
    assert [each.strength for each in progress.texts] == [0.0]


def test_closing_ends_the_requests_that_wait_and_run(run: Run) -> None:
    model_worker = ModelWorker(run.language_model_source, "cpu", MAX_ROWS)
    model_worker.call(lambda language_model: None).result(TIMEOUT_SECONDS)
    hold, held, deliveries = Event(), Event(), [[], []]  # type: tuple[Event, Event, list[list[Delivery]]]

    def wait(_language_model: LanguageModel) -> None:
        held.set()
        hold.wait(TIMEOUT_SECONDS)

    calls = [model_worker.call(wait), model_worker.call(lambda _: None)]
    for received in deliveries:
        request = steering_request(run, lambda: None)
        request.deliver = received.append
        model_worker.generate(request)
    assert held.wait(TIMEOUT_SECONDS)
    model_worker.close()
    hold.set()
    calls[0].result(TIMEOUT_SECONDS)
    assert calls[1].cancelled()
    for (answer,) in deliveries:
        assert isinstance(answer, BusyError) and "stopping" in str(answer)
    with pytest.raises(BusyError, match="stopping"):
        model_worker.call(lambda _: None)
    with pytest.raises(BusyError, match="stopping"):
        model_worker.generate(steering_request(run, lambda: None))
