"""The language models in memory: loaded once, when first needed, and one thread each to run them.

A generation is not one long piece of work but a token at a time, so several take turns and the event loop never waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from backend.errors import BusyError
from backend.library import Library
from backend.schemas import LoadedLanguageModel
from backend.settings import Settings
from trainer.config import SteeringConfig
from trainer.errors import TooLongError
from trainer.language_model import LanguageModel
from trainer.routing import Routing, prompt_ids, route
from trainer.run import Run
from trainer.steering import SteeringStep, steer


@dataclass(frozen=True)
class Routed:
    """A routing, how long it took, and how long a text may be."""

    routing: Routing
    max_tokens: int
    took_ms: float


@dataclass
class _Host:
    """A language model and the only thread that touches it."""

    source: str
    worker: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "language-model"))
    language_model: LanguageModel | None = None

    def loaded(self, device: str) -> LanguageModel:
        """The language model; called on the worker alone, so it is loaded once."""
        if self.language_model is None:
            self.language_model = LanguageModel.load(self.source, device)
        return self.language_model


class LiveEngine:
    """Routes texts and steers generations with the language models that the runs belong to."""

    def __init__(self, settings: Settings, library: Library) -> None:
        self._settings = settings
        self._library = library
        self._hosts: dict[str, _Host] = {}
        self._lock = Lock()
        self._admitted = 0

    def language_models(self) -> tuple[LoadedLanguageModel, ...]:
        """Those in memory now."""
        loaded = [(host.source, host.language_model) for host in self._hosts.copy().values()]
        return tuple(
            LoadedLanguageModel(source=source, device=str(it.device), dtype=str(it.dtype).removeprefix("torch."))
            for source, it in loaded
            if it is not None
        )

    def route(self, name: str, text: str) -> Routed:
        """Route a text through a run; blocks until it is done.

        Raises:
            BusyError: too many requests are waiting.
            UserError: the run, the text or the language model cannot be used.
        """
        with self._admission():
            run = self._library.run(name).run
            host = self._host(run)
            return host.worker.submit(self._route, host, run, text).result()

    async def steer(
        self, name: str, config: SteeringConfig, units: Mapping[int, float]
    ) -> AsyncGenerator[SteeringStep, None]:
        """Generate without and with edits, step by step; closing the generator stops it within a token.

        Raises:
            BusyError: too many requests are waiting.
            UserError: the run, the prompt, an edit or the language model cannot be used.
        """
        with self._admission():
            run = (await asyncio.to_thread(self._library.run, name)).run
            host = self._host(run)
            on_worker = partial(asyncio.get_running_loop().run_in_executor, host.worker)
            steps = await on_worker(self._steps, host, run, config, units)
            try:
                while (step := await on_worker(next, steps, None)) is not None:
                    yield step
            finally:
                # On the worker, behind the step that it may be taking now.
                host.worker.submit(_close, steps)

    def close(self) -> None:
        """Let go of the threads; what waits is given up."""
        for host in self._hosts.values():
            host.worker.shutdown(wait=False, cancel_futures=True)

    def _route(self, host: _Host, run: Run, text: str) -> Routed:
        language_model = host.loaded(self._settings.device)
        self._check_length(language_model, text)
        started = time.perf_counter()
        routing = route(language_model, run, text)
        took_ms = (time.perf_counter() - started) * 1000
        return Routed(routing, min(language_model.max_tokens, self._settings.prompt_tokens), took_ms)

    def _steps(
        self, host: _Host, run: Run, config: SteeringConfig, units: Mapping[int, float]
    ) -> Iterator[SteeringStep]:
        language_model = host.loaded(self._settings.device)
        self._check_length(language_model, config.prompt)
        return steer(language_model, run, config, units)

    def _check_length(self, language_model: LanguageModel, text: str) -> None:
        found, limit = len(prompt_ids(language_model, text)), self._settings.prompt_tokens
        if found > limit:
            raise TooLongError(f"The prompt has {found} tokens and this server takes {limit}; shorten it.")

    def _host(self, run: Run) -> _Host:
        source = run.language_model_source
        with self._lock:
            return self._hosts.setdefault(source, _Host(source))

    @contextmanager
    def _admission(self) -> Iterator[None]:
        with self._lock:
            if self._admitted >= self._settings.waiting:
                raise BusyError(f"{self._admitted} requests are being worked on already; try again in a moment.")
            self._admitted += 1
        try:
            yield
        finally:
            with self._lock:
                self._admitted -= 1


def _close(steps: Iterator[SteeringStep]) -> None:
    close = getattr(steps, "close", None)
    if close is not None:
        close()
