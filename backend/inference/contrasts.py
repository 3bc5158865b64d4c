"""Contrasts on the server: steps on the language model's worker thread, interleaved with other requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from mxd.backend.errors import BusyError
from mxd.backend.inference.jobs import JobContext
from mxd.backend.inference.service import InferenceService
from mxd.backend.schemas.comparison import ContrastProgressEvent
from mxd.trainer.analysis.contrast.results import Contrast
from mxd.trainer.config import ContrastConfig

if TYPE_CHECKING:
    from mxd.trainer.analysis.contrast.measure import ContrastMeasurement

Result = TypeVar("Result")
SEQUENCES_PER_STEP = 8
"""Few, so that other requests wait only briefly."""
BUSY_SECONDS = 0.5
"""Seconds between attempts to schedule a step when the queue is full."""


async def contrast_steps(
    live: InferenceService, run: str, texts: Sequence[Sequence[str]], config: ContrastConfig
) -> AsyncGenerator[ContrastProgressEvent | Contrast, None]:
    """Yield the progress of each step, then the contrast. Closing the generator cancels it.

    Raises:
        BusyError: too many requests are waiting.
        UserError: the run cannot be used, a text is too short, or no expert is active often enough.
    """
    measurement = (await live.submit([run], _begin, texts, config)).value
    yield _progress(measurement)
    while not measurement.is_done:
        await _in_turn(live, run, lambda _context: measurement.step(SEQUENCES_PER_STEP))
        yield _progress(measurement)
    # Counting needs no language model, so it does not occupy the worker.
    yield await asyncio.to_thread(measurement.result)


def _begin(context: JobContext, texts: Sequence[Sequence[str]], config: ContrastConfig) -> ContrastMeasurement:
    from mxd.trainer.analysis.contrast.counting import NamedText, shuffled
    from mxd.trainer.analysis.contrast.measure import ContrastMeasurement

    a, b = (NamedText(name, shuffled(documents, config.seed)) for name, documents in zip("AB", texts, strict=True))
    return ContrastMeasurement(context.runs[0], a, b, config, context.language_model)


def _progress(measurement: ContrastMeasurement) -> ContrastProgressEvent:
    return ContrastProgressEvent(tokens=measurement.tokens_done, total=measurement.tokens)


async def _in_turn(live: InferenceService, run: str, job: Callable[[JobContext], Result]) -> Result:
    """Run one step between other requests; an admitted job waits when the queue is full."""
    while True:
        try:
            return (await live.submit([run], job)).value
        except BusyError:
            await asyncio.sleep(BUSY_SECONDS)
