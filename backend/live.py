"""Routing and steering for many clients at once, on language models that are loaded once, when first needed.

So is the code that runs them, on the language models' own threads: PyTorch takes seconds to import, and browsing has no
need of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, TypeVar

from backend.engine import ROWS_PER_SAMPLE, Delivered, Generation, Growing, Host, Waiting
from backend.errors import BusyError, ClientGoneError
from backend.library import Library
from backend.schemas import LoadedLanguageModel
from backend.settings import Settings
from trainer.circuits.config import CircuitConfig, TargetConfig
from trainer.config import DoseConfig, SteeringConfig
from trainer.dose_curve import DoseStep
from trainer.errors import TooLongError, UserError
from trainer.progress import Progress
from trainer.run import Run
from trainer.steps import SteeringStep

if TYPE_CHECKING:
    from trainer.circuits.agreement import Agreement
    from trainer.circuits.effects import Effect
    from trainer.circuits.graph import Circuit, Switch
    from trainer.dose import Dose
    from trainer.effects import ExpertEffect
    from trainer.language_model import LanguageModel
    from trainer.predictions import Predictions
    from trainer.routing import Routing
    from trainer.steering import Steering, Units

Result = TypeVar("Result")

ROWS_PER_STRENGTH = 2
"""A steered text, and the same without edits; the default text takes as many."""


@dataclass(frozen=True)
class Routed:
    """The routings of one text through one run or several, how long they took, and how long a text may be."""

    routings: tuple[Routing, ...]
    max_tokens: int
    took_ms: float


@dataclass(frozen=True)
class Predicted:
    """What is expected after each token of a text, as a run changes it, and how long it took."""

    predictions: Predictions
    took_ms: float


@dataclass(frozen=True)
class Traced:
    """A circuit, and how long it took."""

    circuit: Circuit
    took_ms: float


@dataclass(frozen=True)
class SwitchedOff:
    """What came of switching groups of experts off, how well it agrees with the graph, and how long it took."""

    effects: tuple[Effect, ...]
    agreement: Agreement
    took_ms: float


class LiveEngine:
    """Routes texts and steers generations with the language models that the runs belong to."""

    def __init__(self, settings: Settings, library: Library) -> None:
        self._settings = settings
        self._library = library
        self._hosts: dict[str, Host] = {}
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

    async def route(self, names: Sequence[str], text: str, k: int | None = None) -> Routed:
        """Route a text through a run, or through several of different layers of one language model.

        Args:
            k: experts of each token that are let through, the strongest first; by default each run's K.

        Raises:
            BusyError: too many requests are waiting.
            UserError: a run, the text or the language model cannot be used.
        """
        with self._admission():
            runs = await self._runs(names)
            return await asyncio.wrap_future(self._host(runs[0]).call(partial(self._route, runs, text, k)))

    async def predict(self, name: str, text: str, k: int | None = None) -> Predicted:
        """What is expected after each token of a text, with the MLP and with the run's layer in its place;
        ``k`` as in ``route``.

        Raises:
            BusyError: too many requests are waiting.
            UserError: the run, the text or the language model cannot be used.
        """
        with self._admission():
            run = (await asyncio.to_thread(self._library.run, name)).run
            return await asyncio.wrap_future(self._host(run).call(partial(self._predict, run, text, k)))

    async def effects(self, name: str, text: str, position: int, k: int | None = None) -> tuple[ExpertEffect, ...]:
        """Direct effects of the experts that are active on a token of a text; ``k`` as in ``route``.

        Raises:
            BusyError: too many requests are waiting.
            UserError: the run, the text, the position or the language model cannot be used.
        """
        with self._admission():
            run = (await asyncio.to_thread(self._library.run, name)).run
            return await asyncio.wrap_future(self._host(run).call(partial(self._effects, run, text, position, k)))

    async def trace(self, names: Sequence[str], config: CircuitConfig) -> Traced:
        """The circuit of a prompt through runs of different layers; given up as soon as nobody waits for it.

        Raises:
            BusyError: too many requests are waiting.
            UserError: a run, the text, the target or the language model cannot be used.
        """
        return await self.while_wanted(names, lambda runs, gone: partial(self._trace, runs, config, gone))

    async def switch_off(
        self, names: Sequence[str], config: TargetConfig, groups: Sequence[Sequence[Switch]]
    ) -> SwitchedOff:
        """What comes of switching groups of experts off; errors as of ``trace``."""
        return await self.while_wanted(names, lambda runs, gone: partial(self._switch_off, runs, config, groups, gone))

    async def steer(
        self, names: Sequence[str], config: SteeringConfig, units: Units
    ) -> AsyncGenerator[Sequence[SteeringStep | Waiting], None]:
        """Generate without and with edits; closing the generator stops it within a token.

        Yields what comes of each step of the language model together: a token of every text that goes on.

        Args:
            names: the run that is steered, then those of other layers whose experts are edited too.
            config: prompt, edits and sampling.
            units: run -> expert -> its 99th percentile.

        Raises:
            BusyError: too many requests are waiting.
            UserError: a run, the prompt, an edit or the language model cannot be used.
        """
        with self._admission():
            runs = await self._runs(names)
            prepare = partial(self._prepare, runs, config, units)
            async with aclosing(self._generate(runs[0], prepare, ROWS_PER_SAMPLE * config.sampling.samples)) as steps:
                async for step in steps:
                    yield step

    async def dose(
        self, names: Sequence[str], config: DoseConfig, units: Units
    ) -> AsyncGenerator[Sequence[DoseStep | Waiting], None]:
        """The same prompt with one edit at several strengths, in one batch; arguments and errors as of ``steer``."""
        with self._admission():
            runs = await self._runs(names)
            prepare = partial(self._prepare_dose, runs, config, units)
            rows = ROWS_PER_STRENGTH * (len(config.strengths) + 1) * config.sampling.samples
            async with aclosing(self._generate(runs[0], prepare, rows)) as steps:
                async for step in steps:
                    yield step

    @property
    def at_work(self) -> int:
        """Requests that are being worked on or wait."""
        return self._admitted

    def close(self) -> None:
        """Let go of the threads; what waits is given up."""
        for host in self._hosts.values():
            host.close()

    def _route(self, runs: list[Run], text: str, k: int | None, language_model: LanguageModel) -> Routed:
        from trainer.routing import route_together

        self._check_length(language_model, text)
        started = time.perf_counter()
        routings = route_together(language_model, runs, text, k)
        return Routed(routings, min(language_model.max_tokens, self._settings.prompt_tokens), _ms_since(started))

    def _predict(self, run: Run, text: str, k: int | None, language_model: LanguageModel) -> Predicted:
        from trainer.predictions import predict

        self._check_length(language_model, text)
        started = time.perf_counter()
        return Predicted(predict(language_model, run, text, k), _ms_since(started))

    def _effects(
        self, run: Run, text: str, position: int, k: int | None, language_model: LanguageModel
    ) -> tuple[ExpertEffect, ...]:
        from trainer.effects import direct_effects

        self._check_length(language_model, text)
        return direct_effects(language_model, run, text, position, k)

    def _trace(self, runs: list[Run], config: CircuitConfig, given_up: Event, language_model: LanguageModel) -> Traced:
        from trainer.circuits.tracing import trace

        started = time.perf_counter()
        return Traced(trace(language_model, runs, config, _unless(given_up)), _ms_since(started))

    def _switch_off(
        self,
        runs: list[Run],
        config: TargetConfig,
        groups: Sequence[Sequence[Switch]],
        given_up: Event,
        language_model: LanguageModel,
    ) -> SwitchedOff:
        from trainer.circuits.agreement import agreement
        from trainer.circuits.effects import switch_off

        started = time.perf_counter()
        effects = switch_off(language_model, runs, config, groups, _unless(given_up))
        return SwitchedOff(effects, agreement(effects), _ms_since(started))

    async def while_wanted(
        self, names: Sequence[str], work: Callable[[list[Run], Event], Callable[[LanguageModel], Result]]
    ) -> Result:
        """Work of seconds, which learns that whoever asked for it has gone."""
        given_up = Event()
        with self._admission():
            runs = await self._runs(names)
            try:
                return await asyncio.wrap_future(self._host(runs[0]).call(work(runs, given_up)))
            finally:
                given_up.set()

    def _prepare(
        self,
        runs: list[Run],
        config: SteeringConfig,
        units: Units,
        language_model: LanguageModel,
    ) -> Steering:
        from trainer.steering import Steering

        self._check_length(language_model, config.prompt)
        return Steering.prepare(language_model, runs, config, units)

    def _prepare_dose(
        self,
        runs: list[Run],
        config: DoseConfig,
        units: Units,
        language_model: LanguageModel,
    ) -> Dose:
        from trainer.dose import Dose

        self._check_length(language_model, config.prompt)
        return Dose.prepare(language_model, runs, config, units)

    async def _generate(
        self, run: Run, prepare: Callable[[LanguageModel], Growing], rows: int
    ) -> AsyncGenerator[Any, None]:
        """The steps of what ``prepare`` gives, as the language model of ``run`` takes them."""
        loop, delivered = asyncio.get_running_loop(), asyncio.Queue[Delivered]()
        generation = Generation(prepare, rows, deliver=lambda step: _deliver(loop, delivered, step))
        self._host(run).generate(generation)
        try:
            while (step := await delivered.get()) is not None:
                if isinstance(step, BaseException):
                    raise step
                yield step
        finally:
            generation.given_up.set()

    async def _runs(self, names: Sequence[str]) -> list[Run]:
        """Runs by name, of one language model.

        Raises:
            UserError: they belong to different ones.
        """
        runs = [(await asyncio.to_thread(self._library.run, name)).run for name in names]
        for run in runs[1:]:
            if run.language_model_source != runs[0].language_model_source:
                raise UserError(
                    f"{run.name} belongs to another language model than {runs[0].name}; choose runs of the same one."
                )
        return runs

    def _check_length(self, language_model: LanguageModel, text: str) -> None:
        from trainer.routing import prompt_ids

        found, limit = len(prompt_ids(language_model, text)), self._settings.prompt_tokens
        if found > limit:
            raise TooLongError(f"The prompt has {found} tokens and this server takes {limit}; shorten it.")

    def _host(self, run: Run) -> Host:
        source = run.language_model_source
        with self._lock:
            return self._hosts.setdefault(source, Host(source, self._settings.device, self._settings.rows))

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


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _unless(given_up: Event) -> Progress:
    """Progress that ends the work once it is given up."""

    def shown(done: int, total: int, note: str) -> None:  # noqa: ARG001 - as every progress is told
        if given_up.is_set():
            raise ClientGoneError("The client has closed its connection.")

    return shown


def _deliver(loop: asyncio.AbstractEventLoop, delivered: asyncio.Queue[Delivered], step: Delivered) -> None:
    # The loop may have ended before the language model's thread: then nobody is left to tell.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(delivered.put_nowait, step)
