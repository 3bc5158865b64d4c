"""One language model, the only thread that touches it, and everything that it is generating at the moment.

All generations share one batch and take a token each per step; a new one joins between two steps, and one that ends,
fails or is given up leaves at once. Short work, such as routing a text, is done between steps too, in its turn.

What takes seconds to import is imported by that thread, so that the server answers before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

from backend.importing import import_what_computes
from trainer.dose_curve import DoseStep
from trainer.errors import UserError
from trainer.steps import SteeringStep

if TYPE_CHECKING:
    from trainer.generation import Row, RowBatch, Step
    from trainer.language_model import LanguageModel

log = logging.getLogger(__name__)
Result = TypeVar("Result")
ROWS_PER_SAMPLE = 4


class OutOfMemoryError(UserError):
    """The device has no room for a request; the others go on."""

    code = "out-of-memory"


@dataclass(frozen=True)
class Waiting:
    """Told to a generation that has to wait, whenever its place changes."""

    before: int
    """Generations that will join earlier."""


class Growing(Protocol):
    """What a generation does in the batch: one steered prompt, or one at several strengths."""

    @property
    def finished(self) -> bool:
        """Whether all its texts have ended."""

    def rows(self) -> list[Row]:
        """Its rows that go on."""

    def join(self, batch: RowBatch) -> Iterator[SteeringStep | DoseStep]:
        """Read its prompt, and take the first tokens."""

    def advance(self, batch: RowBatch, step: Step) -> Iterator[SteeringStep | DoseStep]:
        """Take the next token of each text."""


Told = SteeringStep | DoseStep | Waiting
Delivered = Sequence[Told] | BaseException | None
"""What a generation tells its client: what has come of one step, an error that ends it, or None once it is done."""


@dataclass(eq=False)
class Generation:
    """A request to generate, from the moment that it is made."""

    prepare: Callable[[LanguageModel], Growing]
    rows: int
    deliver: Callable[[Delivered], None]
    """Called on the language model's thread; must not wait."""
    given_up: Event = field(default_factory=Event)
    steering: Growing | None = None
    told: int | None = None

    def tell_place(self, before: int) -> None:
        if before != self.told:
            self.told = before
            self.deliver((Waiting(before),))


class Host:
    """A language model with its thread. Made at once, loaded when it is first needed."""

    def __init__(self, source: str, device: str, max_rows: int) -> None:
        self.source = source
        self.language_model: LanguageModel | None = None
        self._device = device
        self._max_rows = max_rows
        self._worker = ThreadPoolExecutor(1, "language-model", import_what_computes)
        self._lock = Lock()
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []
        self._batch: RowBatch | None = None
        self._joining: Generation | None = None
        self._going = False

    def call(self, work: Callable[[LanguageModel], Result]) -> Future[Result]:
        """Do short work on the language model, between two steps of what it generates."""
        return self._worker.submit(self._called, work)

    def generate(self, generation: Generation) -> None:
        """Let a generation join as soon as there is room."""
        with self._lock:
            self._waiting.append(generation)
            idle, self._going = not self._going, True
        if idle:
            self._take_turn()

    def close(self) -> None:
        """Let go of the thread; what is under way is given up."""
        with self._lock:
            for generation in (*self._waiting, *self._running):
                generation.given_up.set()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _called(self, work: Callable[[LanguageModel], Result]) -> Result:
        try:
            return work(self._loaded())
        except (RuntimeError, MemoryError) as error:
            raise _as_told(error) from error

    def _loaded(self) -> LanguageModel:
        if self.language_model is None:
            from trainer.language_model import LanguageModel

            self.language_model = LanguageModel.load(self.source, self._device)
        return self.language_model

    def _take_turn(self) -> None:
        self._worker.submit(self._turn).add_done_callback(self._after_turn)

    def _turn(self) -> None:
        """One step of everything that is under way."""
        self._drop_given_up()
        self._admit()
        if self._running:
            self._step()

    def _after_turn(self, turn: Future[None]) -> None:
        """Go to the back of the thread's queue; a defect ends what it was met in, and is not silent."""
        if turn.cancelled():
            return
        error = turn.exception()
        if error is not None:
            log.error("A step of %s has failed", self.source, exc_info=error)
            for generation in [self._joining] if self._joining else list(self._running):
                self._fail(generation, error)
            self._joining = None
        with self._lock:
            self._going = going = bool(self._waiting or self._running)
        if going:
            self._take_turn()

    def _drop_given_up(self) -> None:
        with self._lock:
            self._waiting = deque(each for each in self._waiting if not each.given_up.is_set())
        for generation in [each for each in self._running if each.given_up.is_set()]:
            self._remove(generation)

    def _admit(self) -> None:
        """Let those in whose rows fit, in the order in which they came; tell the others their place."""
        while (generation := self._next_that_fits()) is not None:
            self._joining = generation
            try:
                self._join(generation)
            except UserError as error:
                self._fail(generation, error)
            except (RuntimeError, MemoryError) as error:
                self._fail_for_memory(generation, error)
            self._joining = None
        with self._lock:
            waiting = list(self._waiting)
        for place, each in enumerate(waiting):
            each.tell_place(place)

    def _next_that_fits(self) -> Generation | None:
        # Texts share rows while they are the same; each counts with all that it may come to need.
        held = sum(generation.rows for generation in self._running)
        with self._lock:
            if self._waiting and (not held or held + self._waiting[0].rows <= self._max_rows):
                return self._waiting.popleft()
        return None

    def _join(self, generation: Generation) -> None:
        from trainer.generation import RowBatch

        language_model = self._loaded()
        self._batch = self._batch or RowBatch(language_model)
        generation.steering = generation.prepare(language_model)
        self._running.append(generation)
        self._pass_on(generation, generation.steering.join(self._batch))

    def _step(self) -> None:
        assert self._batch is not None
        try:
            step = self._batch.step()
        except (RuntimeError, MemoryError) as error:
            # The newest made it too much; the others have their rows still and take the step again.
            self._fail_for_memory(self._running[-1], error)
            return
        for generation in list(self._running):
            assert generation.steering is not None
            try:
                self._pass_on(generation, generation.steering.advance(self._batch, step))
            except (RuntimeError, MemoryError) as error:
                self._fail_for_memory(generation, error)

    def _pass_on(self, generation: Generation, steps: Iterator[SteeringStep | DoseStep]) -> None:
        assert generation.steering is not None
        generation.deliver(tuple(steps))
        if generation.steering.finished:
            self._running.remove(generation)
            generation.deliver(None)

    def _fail_for_memory(self, generation: Generation, error: Exception) -> None:
        """End one generation for want of memory; whatever else it was is raised again."""
        told = _as_told(error)
        if told is error:
            raise error
        self._fail(generation, told)

    def _fail(self, generation: Generation, error: BaseException) -> None:
        import torch

        self._remove(generation)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        generation.deliver(error)

    def _remove(self, generation: Generation) -> None:
        if generation in self._running:
            self._running.remove(generation)
        if generation.steering is not None and self._batch is not None:
            self._batch.leave(generation.steering.rows())


def _as_told(error: Exception) -> Exception:
    """What a client is told of an error: that there was no memory where it says so, otherwise the error itself."""
    import torch

    words = str(error).lower()
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or any(sign in words for sign in _CPU_SIGNS):
        return OutOfMemoryError(_NO_ROOM)
    return error


_CPU_SIGNS = ("not enough memory", "can't allocate memory", "cannot allocate memory")
"""How PyTorch words it on the CPU, where it raises a plain RuntimeError."""
_NO_ROOM = "The device is out of memory for this request; shorten the prompt, or ask for fewer samples or tokens."
