"""The worker thread of one language model, with the batch of everything that it generates.

All generations share one batch and take one token per step. A new one joins between two steps. One that ends, fails or
is cancelled leaves right away. Short jobs, such as routing a text, also run between steps, in order of arrival.

The thread imports PyTorch and transformers itself, so that the server answers before these imports have finished.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, TypeVar

from mxd.backend.errors import BusyError, OutOfMemoryError, UnusableRunError
from mxd.backend.inference.run_loader import import_compute_modules
from mxd.backend.schemas.steering import ProgressEvent
from mxd.trainer.errors import UserError, is_out_of_memory
from mxd.trainer.inference.results import SteeringStep, StrengthSweepProgressEvent, StrengthSweepStep
from mxd.trainer.utils.memory import trim_freed_memory

if TYPE_CHECKING:
    from mxd.trainer.config.training import DtypeChoice
    from mxd.trainer.inference.generation import RowBatch
    from mxd.trainer.inference.steering import Steering
    from mxd.trainer.inference.strength_sweep import StrengthSweep
    from mxd.trainer.language_model.model import LanguageModel

    Generation = Steering | StrengthSweep
    """A prepared request in the batch: one steered prompt, or one prompt at several strengths."""

log = logging.getLogger(__name__)
Result = TypeVar("Result")


GenerationEvent = SteeringStep | StrengthSweepStep | ProgressEvent
Delivery = Sequence[GenerationEvent] | BaseException | None
"""A message to a generation's client: the events of one step, the error that ends it, or None at the end."""


@dataclass(eq=False)
class GenerationRequest:
    """A request to generate with its state in the queue and in the batch."""

    prepare: Callable[[LanguageModel], Generation]
    """Checks the request, on the worker thread."""
    rows: int
    """Batch rows that the request may need."""
    deliver: Callable[[Delivery], None]
    """Called on the worker thread; must not block."""
    cancelled: Event = field(default_factory=Event)
    generation: Generation | None = None
    """Result of ``prepare``; None while the request waits."""
    position: int | None = None
    """Last position in the queue that was delivered."""


class ModelWorker:
    """A language model with the only thread that uses it. The model is loaded when it is first needed."""

    def __init__(
        self,
        source: str,
        device: str,
        max_rows: int,
        dtype: DtypeChoice = "auto",
        make_room: Callable[[ModelWorker], None] = lambda _worker: None,
    ) -> None:
        """Create a worker without its language model, whose Hub name, folder or GGUF file is ``source``. ``max_rows``:
        most rows of the batch. ``make_room`` is called on the worker thread before the model is loaded."""
        self.source = source
        self.last_used = 0.0
        """Time of the last request, on the monotonic clock."""
        self._make_room = make_room
        self._is_closed = False
        self.language_model: LanguageModel | None = None
        self._device, self._dtype = device, dtype
        self._max_rows = max_rows
        self._thread = ThreadPoolExecutor(1, "language-model", import_compute_modules)
        self._lock = Lock()
        self._waiting: deque[GenerationRequest] = deque()
        self._running: list[GenerationRequest] = []
        self._batch: RowBatch | None = None
        self._joining: GenerationRequest | None = None
        self._scheduled = False
        self._calls = 0
        self._most_rows = 0
        """Largest number of rows in a step since memory was last returned to the system."""
        self._ran_out_of_memory = False
        """True from a request that ran out of memory to the end of its turn, when its tensors are gone."""

    @property
    def num_requests(self) -> int:
        return self._calls + len(self._waiting) + len(self._running)

    def call(self, job: Callable[[LanguageModel], Result]) -> Future[Result]:
        """Run a short job between two steps of the batch."""
        with self._lock:
            self._check_open()
            self._calls += 1
            future = self._thread.submit(self._call, job)

        def forget(_: Future[Result]) -> None:
            with self._lock:
                self._calls -= 1

        future.add_done_callback(forget)
        return future

    def generate(self, request: GenerationRequest) -> None:
        """Queue a generation; it joins the batch once its rows fit."""
        with self._lock:
            self._check_open()
            self._waiting.append(request)
            turn = None if self._scheduled else self._thread.submit(self._turn)
            self._scheduled = True
        if turn is not None:  # without the lock, because an ended turn calls back at once
            turn.add_done_callback(self._after_turn)

    def close(self) -> None:
        """Cancel all requests, tell their clients, and end the thread without waiting for it."""
        with self._lock:
            self._is_closed = True
            ended = [*self._waiting, *self._running]
            self._waiting.clear()
        # Without the lock, which the callbacks of cancelled calls need.
        self._thread.shutdown(wait=False, cancel_futures=True)
        for request in ended:
            request.cancelled.set()
            request.deliver(_stopping())

    @property
    def is_idle(self) -> bool:
        """True if the language model is in memory and no request needs it."""
        return self.language_model is not None and not self.num_requests and not self._is_closed

    def unload(self) -> None:
        """Free the memory of the language model, unless a request needs it by then. Waits for the worker's thread."""
        with self._lock:
            freed = None if self._is_closed else self._thread.submit(self._unload)
        if freed is not None:
            freed.result()

    def _unload(self) -> None:
        with self._lock:
            if self.num_requests:
                return
            self.language_model, self._batch = None, None
        gc.collect()  # a language model and its parts refer to each other
        _free_memory()

    def _check_open(self) -> None:
        if self._is_closed:
            raise _stopping()
        self.last_used = time.monotonic()

    def _call(self, job: Callable[[LanguageModel], Result]) -> Result:
        try:
            language_model = self._load()
            return job(language_model)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler, whose exception keeps the tensors of the job alive.
        _free_memory()
        raise OutOfMemoryError()

    def _load(self) -> LanguageModel:
        if self.language_model is None:
            from mxd.trainer.language_model.model import LanguageModel

            try:
                self._make_room(self)
                self.language_model = LanguageModel.load(self.source, self._device, self._dtype)
            except UserError as error:  # the server's files, not the request
                raise UnusableRunError(str(error)) from error
        return self.language_model

    def _turn(self) -> None:
        """Take one step with all running generations."""
        with self._lock:
            self._waiting = deque(request for request in self._waiting if not request.cancelled.is_set())
        for request in [request for request in self._running if request.cancelled.is_set()]:
            self._remove(request)
        self._admit()
        if self._running:
            self._step()
        if self._ran_out_of_memory:
            self._ran_out_of_memory = False
            _free_memory()
        # Return the memory of a large batch to the system. Small batches use the same memory again.
        if not self._running and self._most_rows > self._max_rows // 2:
            self._most_rows = 0
            trim_freed_memory()

    def _after_turn(self, turn: Future[None]) -> None:
        """Queue the next turn after the jobs that wait. A defect is logged and ends the generations that it hit."""
        if turn.cancelled():
            return
        error = turn.exception()
        if error is not None:
            log.error("A generation step of %s failed", self.source, exc_info=error)
            for request in [self._joining] if self._joining else list(self._running):
                self._fail(request, error)
            self._joining = None
        with self._lock:
            self._scheduled = bool(self._waiting or self._running) and not self._is_closed
            following = self._thread.submit(self._turn) if self._scheduled else None
        if following is not None:
            following.add_done_callback(self._after_turn)

    def _admit(self) -> None:
        """Admit waiting requests in order of arrival while their rows fit; report queue positions to the others."""
        while True:
            # Identical texts share rows, but each request counts with all the rows that it may need later.
            used = sum(request.rows for request in self._running)
            with self._lock:
                if not self._waiting or (used and used + self._waiting[0].rows > self._max_rows):
                    break
                request = self._waiting.popleft()
            self._joining = request
            try:
                language_model = self._load()
                if self._batch is None:
                    from mxd.trainer.inference.generation import RowBatch

                    self._batch = RowBatch(language_model)
                request.generation = request.prepare(language_model)
                self._running.append(request)
                self._deliver(request, request.generation.join(self._batch))
            except UserError as error:
                self._fail(request, error)
            except (RuntimeError, MemoryError) as error:
                self._fail_for_memory(request, error)
            self._joining = None
        with self._lock:
            waiting = list(self._waiting)
        for before, request in enumerate(waiting):
            if before != request.position:
                request.position = before
                request.deliver((ProgressEvent(queue_position=before),))

    def _step(self) -> None:
        assert self._batch is not None
        self._most_rows = max(self._most_rows, sum(request.rows for request in self._running))
        try:
            step = self._batch.step()
        except (RuntimeError, MemoryError) as error:
            # The newest request exceeded the memory. The others keep their rows and repeat the step.
            self._fail_for_memory(self._running[-1], error)
            return
        for request in list(self._running):
            assert request.generation is not None
            try:
                self._deliver(request, request.generation.advance(self._batch, step))
            except (RuntimeError, MemoryError) as error:
                self._fail_for_memory(request, error)

    def _deliver(self, request: GenerationRequest, events: Iterator[SteeringStep | StrengthSweepStep]) -> None:
        """Deliver the events of a step together, those up to a report of progress right away."""
        assert request.generation is not None
        together: list[SteeringStep | StrengthSweepStep] = []
        for event in events:
            together.append(event)
            if isinstance(event, StrengthSweepProgressEvent):
                request.deliver(tuple(together))
                together = []
            if request.cancelled.is_set():
                self._remove(request)
                return
        if together:
            request.deliver(tuple(together))
        if request.generation.finished:
            self._running.remove(request)
            request.deliver(None)

    def _fail_for_memory(self, request: GenerationRequest, error: Exception) -> None:
        """End one request if ``error`` means that memory ran out; raise any other error again."""
        if not is_out_of_memory(error):
            raise error
        self._ran_out_of_memory = True
        self._fail(request, OutOfMemoryError())

    def _fail(self, request: GenerationRequest, error: BaseException) -> None:
        self._remove(request)
        request.deliver(error)

    def _remove(self, request: GenerationRequest) -> None:
        if request in self._running:
            self._running.remove(request)
        if request.generation is not None and self._batch is not None:
            self._batch.leave(request.generation.rows())


def _stopping() -> BusyError:
    return BusyError("The server is stopping. Send the request again when it has started.")


def _free_memory() -> None:
    from mxd.trainer.utils.devices import free_cached_memory  # imports torch

    free_cached_memory()
