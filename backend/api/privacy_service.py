"""Privacy fine-tuning on the server: steps on the language model's worker thread, interleaved with other requests.

Nothing is written before the end; a closed connection cancels it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import Engine

from mxd.backend.database.engine import reading
from mxd.backend.errors import BusyError
from mxd.backend.inference.jobs import JobContext
from mxd.backend.inference.service import InferenceService
from mxd.backend.queries.privacy import indexed_text, newest_of
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.schemas import (
    ConfidenceRequest,
    ConfidenceResponse,
    ProtectDoneEvent,
    ProtectProgressEvent,
    ProtectRequest,
)
from mxd.backend.settings import Settings
from mxd.trainer.config.privacy import ProtectConfig
from mxd.trainer.training.privacy.results import EvalPoint, TokenConfidence

if TYPE_CHECKING:
    from mxd.trainer.training.privacy.protect import Protection, ProtectionOutcome

T = TypeVar("T")

BUSY_SECONDS = 0.5
"""Seconds between attempts to schedule a step when the queue is full."""

Told = ProtectProgressEvent | ProtectDoneEvent


@dataclass(frozen=True)
class PrivacyService:
    """Dependencies: the live engine, the database, the folder of the runs."""

    live: InferenceService
    database: Engine
    settings: Settings

    async def protect(self, request: ProtectRequest) -> AsyncGenerator[Sequence[Told], None]:
        """Fine-tune runs on the passages and write the new runs; closing the generator cancels without writing.

        Raises:
            BusyError: too many requests are waiting.
            UserError: a run, passage or name is invalid, or no step improved anything.
        """
        ids_SL = await asyncio.to_thread(self._other_text, request)
        config = ProtectConfig(**request.model_dump(include=_SETTINGS))
        protection = (await self.live.submit(request.runs, self._begun, request, ids_SL, config)).value
        yield (ProtectProgressEvent(step=0, total=config.steps, **_figures(protection.initial)),)
        while protection.steps < config.steps:
            point = await self._in_turn(request.runs, lambda _context: protection.step())
            yield (ProtectProgressEvent(step=protection.steps, total=config.steps, **_figures(point)),)
        outcome = await self._in_turn(request.runs, lambda _context: protection.outcome())
        yield (await asyncio.to_thread(self._written, protection, outcome, config),)

    async def tokens(self, request: ConfidenceRequest) -> ConfidenceResponse:
        """Confidence of every token of a text with two sets of runs.

        Raises:
            BusyError: too many requests are waiting.
            UserError: the runs or the text are invalid.
        """
        names = (*request.before, *request.after)
        result = await self.live.submit(names, _by_token, len(request.before), request.text)
        return ConfidenceResponse(tokens=tuple(result.value), took_ms=result.took_ms)

    async def _in_turn(self, names: Sequence[str], job: Callable[[JobContext], T]) -> T:
        """Run one step between other requests; an admitted job waits when the queue is full."""
        while True:
            try:
                return (await self.live.submit(names, job)).value
            except BusyError:
                await asyncio.sleep(BUSY_SECONDS)

    def _other_text(self, request: ProtectRequest) -> npt.NDArray[np.int64]:
        with reading(self.database) as session:
            records = [find_run(session, name) for name in request.runs]
            return indexed_text(session, records[0], ProtectConfig().tokens, seed=0)

    def _begun(
        self,
        context: JobContext,
        request: ProtectRequest,
        ids_SL: npt.NDArray[np.int64],
        config: ProtectConfig,
    ) -> Protection:
        import torch

        from mxd.trainer.storage.run_sets import names_of
        from mxd.trainer.training.privacy.passages import Passage, check_passages
        from mxd.trainer.training.privacy.protect import Protection
        from mxd.trainer.training.privacy.save import check_new_runs

        runs = sorted(context.runs, key=lambda run: run.config.layer)
        names = names_of(runs, request.name)
        check_new_runs(names, self.settings.data, self.database)
        passages = check_passages([Passage(entry.text, entry.paraphrases) for entry in request.passages], "The request")
        for passage in passages:
            for text in (passage.text, *passage.paraphrases):
                context.check_length(text)
        return Protection(context.language_model, runs, names, passages, torch.from_numpy(ids_SL), config)

    def _written(self, protection: Protection, outcome: ProtectionOutcome, config: ProtectConfig) -> ProtectDoneEvent:
        from mxd.trainer.training.privacy.save import write_outcome

        with reading(self.database) as session:
            text = find_index(session, find_run(session, protection.runs[0].name)).text
        write_outcome(protection.runs, outcome, config, text, self.settings.data, self.database)
        with reading(self.database) as session:
            return ProtectDoneEvent(protected=newest_of(session, outcome.result.runs[0]))


_SETTINGS = {"theta", "steps", "learning_rate", "skip_tokens", "max_added_loss", "loss", "store_passages"}


def _figures(point: EvalPoint) -> dict[str, float]:
    return {"confidence_distance": point.protected.confidence_distance, "loss_increase": point.loss_increase}


def _by_token(context: JobContext, num_before: int, text: str) -> list[TokenConfidence]:
    from mxd.trainer.training.privacy.metrics import confidence_by_token

    context.check_length(text)
    return confidence_by_token(context.language_model, context.runs[:num_before], context.runs[num_before:], text)
