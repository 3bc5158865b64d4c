"""Routing, analysis and steering for many concurrent clients, on language models that are loaded on first use.

Contrasts, prices of edits and ablations of one expert take steps on the language model's worker thread, between other
requests. Chats are formatted by templates, which come with language models and may be slow or never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from mxd.backend.errors import BusyError, ClientGoneError, UnusableRunError
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.inference.worker import Delivery, GenerationEvent, GenerationRequest, ModelWorker
from mxd.backend.schemas.runs import LoadedLanguageModel
from mxd.backend.settings import Settings
from mxd.trainer.config.steering import SteeringConfig, StrengthSweepConfig
from mxd.trainer.errors import NotFoundError, TooLongError, UserError
from mxd.trainer.language_model.sources import display_name
from mxd.trainer.language_model.tokenizer import Turn, chat_text
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import Callbacks, Steps

if TYPE_CHECKING:
    from starlette.requests import Request

    from mxd.backend.inference.worker import Generation
    from mxd.trainer.inference.units import Units
    from mxd.trainer.language_model.model import LanguageModel

Result = TypeVar("Result")
Params = ParamSpec("Params")


class CompletionConfig(SteeringConfig):
    """A steered text without its baseline. It also ends where the language model's context does."""


ROWS_PER_SAMPLE = 4
"""Batch rows of one steered sample: the text of each variant, read with and without the edits."""
ROWS_PER_STRENGTH = 3
"""Batch rows of one sample of a strength sweep: the text with and without the edits, and the control's text."""
ROWS_OF_BASELINE = 2
"""Batch rows of one baseline text of a strength sweep."""


@dataclass(frozen=True)
class JobContext:
    """The language model and the runs that a job works on."""

    language_model: LanguageModel
    runs: Sequence[Run]
    prompt_tokens: int
    """The server's limit on the length of a prompt, in tokens."""
    callbacks: Callbacks
    """Cancels a long task once the client has disconnected."""

    def token_ids(self, text: str) -> list[int]:
        """Token ids of a text with the start token. The jobs pass these on, so that it is tokenised once."""
        from mxd.trainer.language_model.tokenizer import prompt_ids

        ids = prompt_ids(self.language_model, text, start_token=self.runs[0].config.text.start_token)
        if len(ids) > self.prompt_tokens:
            raise TooLongError(
                f"The text is too long: {len(ids):,} tokens with the start token. This server accepts "
                f"{self.prompt_tokens:,}. Shorten the text."
            )
        return ids


def prepare_generation(context: JobContext, config: SteeringConfig, units: Units) -> Generation:
    """Check a request to steer, to complete a text or to sweep strengths, depending on the class of ``config``."""
    from mxd.trainer.inference.steering import Steering
    from mxd.trainer.inference.strength_sweep import StrengthSweep
    from mxd.trainer.language_model.tokenizer import prompt_ids

    ids = context.token_ids(config.prompt)
    if isinstance(config, CompletionConfig):
        room = context.language_model.max_tokens - len(prompt_ids(context.language_model, ids, new_tokens=1))
        tokens = min(config.sampling.max_tokens, room)
        fitted = config.model_copy(update={"sampling": config.sampling.model_copy(update={"max_tokens": tokens})})
        return Steering.prepare(context.language_model, context.runs, fitted, units, ids).alone()
    kind = StrengthSweep.prepare if isinstance(config, StrengthSweepConfig) else Steering.prepare
    return kind(context.language_model, context.runs, config, units, ids)  # type: ignore[arg-type]


def max_rows(config: SteeringConfig) -> int:
    if isinstance(config, CompletionConfig):
        return config.sampling.samples
    if isinstance(config, StrengthSweepConfig):
        return (ROWS_PER_STRENGTH * len(config.strengths) + ROWS_OF_BASELINE) * config.sampling.samples
    return ROWS_PER_SAMPLE * config.sampling.samples


class InferenceService:
    """Runs jobs and generations on the language models of the runs, one worker thread per language model."""

    def __init__(self, settings: Settings, library: RunLoader) -> None:
        self._settings = settings
        self._library = library
        self._workers: dict[str, ModelWorker] = {}
        self._lock = Lock()
        self.num_active = 0
        """Number of requests that run or wait."""

    def language_models(self) -> tuple[LoadedLanguageModel, ...]:
        loaded = [(worker.source, worker.language_model) for worker in self._workers.copy().values()]
        return tuple(
            LoadedLanguageModel(
                source=source,
                name=display_name(source),
                device=str(model.device),
                dtype=str(model.dtype).removeprefix("torch."),
            )
            for source, model in loaded
            if model is not None
        )

    async def submit(
        self,
        names: Sequence[str],
        job: Callable[Concatenate[JobContext, Params], Result],
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> Result:
        """Run ``job(context, *args, **kwargs)`` on the thread of the runs' language model. Cancelling the task that
        awaits this cancels the job: before it starts, or at its next ``check_cancelled``."""
        cancelled = Event()
        with self._admission():
            runs = await self._load_runs(names)

            def call(language_model: LanguageModel) -> Result:
                return job(self._context(language_model, runs, cancelled), *args, **kwargs)

            try:
                return await asyncio.wrap_future(self._worker(runs[0]).call(call))
            finally:
                cancelled.set()

    async def generate(
        self, names: Sequence[str], config: SteeringConfig, units: Units
    ) -> AsyncGenerator[Sequence[GenerationEvent], None]:
        """Steer a prompt or, for a ``StrengthSweepConfig``, sweep the strength of an edit. ``names``: the steered run,
        then the runs of other layers whose experts are edited too. Yields the events of each step of the language model
        together. Closing the generator stops it within a token."""
        with self._admission() as release:
            runs = await self._load_runs(names)
            loop, queue, cancelled = asyncio.get_running_loop(), asyncio.Queue[Delivery](), Event()

            def prepare(language_model: LanguageModel) -> Generation:
                return prepare_generation(self._context(language_model, runs, cancelled), config, units)

            def deliver(delivery: Delivery) -> None:
                # The slot is free when the generation has ended, whether or not the client has read its tokens.
                if delivery is None or isinstance(delivery, BaseException):
                    release()
                # The event loop may have ended before the worker thread; then no client waits.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(queue.put_nowait, delivery)

            request = GenerationRequest(prepare, max_rows(config), deliver, cancelled)
            self._worker(runs[0]).generate(request)
            try:
                while (events := await queue.get()) is not None:
                    if isinstance(events, BaseException):
                        raise events
                    yield events
            finally:
                cancelled.set()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()

    async def _load_runs(self, names: Sequence[str]) -> list[Run]:
        """Load runs of one language model by name. Raises UserError if the runs belong to different language models."""
        runs = [(await asyncio.to_thread(self._library.run, name)).run for name in names]
        for run in runs[1:]:
            if run.language_model_source != runs[0].language_model_source:
                raise UserError(
                    f"Runs '{runs[0].name}' and '{run.name}' belong to different language models. "
                    "Choose runs of the same one."
                )
        return runs

    def _context(self, language_model: LanguageModel, runs: Sequence[Run], cancelled: Event) -> JobContext:
        """Load the weights of the runs, on the worker thread."""
        for run in runs:
            try:
                _ = run.layer
            except NotFoundError:  # no weights yet
                raise
            except UserError as error:
                raise UnusableRunError(f"Run '{run.name}' cannot be used: {error}") from error
        return JobContext(language_model, runs, self._settings.prompt_tokens, Callbacks(is_cancelled=cancelled.is_set))

    def _worker(self, run: Run) -> ModelWorker:
        source, settings = run.language_model_source, self._settings
        with self._lock:
            worker = self._workers.get(source)
            if worker is None:
                worker = ModelWorker(source, settings.device, settings.batch_rows, settings.dtype, self._make_room)
                self._workers[source] = worker
            return worker

    def _make_room(self, loading: ModelWorker) -> None:
        """Unload language models that no request needs, least recently used first, until another one fits."""
        from mxd.trainer.language_model.loading import choose_device
        from mxd.trainer.language_model.model import needed_bytes
        from mxd.trainer.training.rates import free_bytes

        settings = self._settings
        idle = [worker for worker in self._workers.copy().values() if worker is not loading and worker.is_idle]
        if not idle:
            return
        needed = needed_bytes(loading.source, settings.device, settings.dtype)
        for worker in sorted(idle, key=lambda worker: worker.last_used):
            if settings.language_model_gb is None:
                room = free_bytes(choose_device(settings.device))
            else:
                loaded = [each.language_model for each in self._workers.copy().values()]
                room = int(settings.language_model_gb * 1e9) - sum(model.num_bytes for model in loaded if model)
            if needed <= room:
                return
            worker.unload()

    @contextmanager
    def _admission(self) -> Iterator[Callable[[], None]]:
        """Count a request until the context ends or the yielded function is called, whichever is first."""
        with self._lock:
            if self.num_active >= self._settings.max_inference_requests:
                raise BusyError(
                    f"The server is busy: {self.num_active} requests are running or waiting. Try again in a moment."
                )
            self.num_active += 1
        counted = [None]

        def release() -> None:
            with self._lock:
                if counted:
                    counted.pop()
                    self.num_active -= 1

        try:
            yield release
        finally:
            release()


async def progress_steps(
    live: InferenceService, runs: Sequence[str], job: Callable[..., Result], *args: Any
) -> AsyncGenerator[tuple[int, int] | Result, None]:
    """Yield the progress of a job, (steps done, total), then its result. Closing the generator cancels the job."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[int, int] | None]()

    def report(done: int, total: int, _note: str) -> None:
        with suppress(RuntimeError):  # the event loop may have ended; then no client waits
            loop.call_soon_threadsafe(queue.put_nowait, (done, total))

    def reporting(context: JobContext) -> Result:
        return job(replace(context, callbacks=replace(context.callbacks, on_progress=report)), *args)

    working = asyncio.ensure_future(live.submit(runs, reporting))
    working.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (progress := await queue.get()) is not None:
            yield progress
        yield await working
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


BUSY_SECONDS = 0.5
"""Seconds between attempts to schedule a step when the queue is full."""


async def in_steps(
    live: InferenceService, runs: Sequence[str], per_turn: int, job: Callable[..., Steps[Result]], *args: Any
) -> AsyncGenerator[tuple[int, int] | Result, None]:
    """Take the steps of a measurement between other requests, ``per_turn`` at once, few so that these wait only
    briefly. Yield as ``progress_steps``. Closing the generator cancels the measurement; then nothing is stored."""
    steps: Steps[Result] | None = None

    def start(context: JobContext) -> tuple[int, int]:
        nonlocal steps
        steps = job(context, *args)
        return next(steps)

    def advance(_context: JobContext) -> tuple[int, int] | Result:
        assert steps is not None
        for _ in range(per_turn):
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
        return step

    reached: tuple[int, int] | Result = await live.submit(runs, start)
    yield reached
    while isinstance(reached, tuple):
        try:
            reached = await live.submit(runs, advance)
        except BusyError:  # an admitted measurement waits when the queue is full
            await asyncio.sleep(BUSY_SECONDS)
        else:
            yield reached


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await ``work``, cancelled if the client of ``request``, whose body was read, closes its connection: FastAPI does
    not notify ordinary handlers, so that abandoned requests would occupy the language model."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError("The client disconnected.")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


WAIT_SECONDS = 10.0
"""Longest wait for other chats. Formatting one takes milliseconds, and is stopped after 5 seconds."""


class ChatFormatter:
    """Formats one chat at a time in a thread of its own, so that a slow template delays nothing but chats."""

    def __init__(self, library: RunLoader) -> None:
        self._library = library
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "chats")

    async def text(self, run: str, text: str, turns: Sequence[Turn]) -> str:
        """Return the prompt: chat turns are formatted by the chat template of the run's tokenizer."""
        if not turns:
            return text
        loaded = await asyncio.to_thread(self._library.run, run)
        tokenizer = await asyncio.to_thread(lambda: loaded.tokenizer)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._turn.acquire()
        except TimeoutError as error:
            raise BusyError("Other chats are being formatted. Try again in a moment.", WAIT_SECONDS) from error
        try:
            arguments = tokenizer, turns, loaded.run.config.text.start_token
            return await asyncio.get_running_loop().run_in_executor(self._thread, chat_text, *arguments)
        finally:
            self._turn.release()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
