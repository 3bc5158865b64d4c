"""Passages protected on the server: step by step on the language model's thread, with other work in between.

Nothing is written before all is done; whoever closes the connection ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import Engine

from backend.database import reading
from backend.errors import BusyError
from backend.live import LiveEngine
from backend.queries.privacy import indexed_text, newest_of
from backend.queries.runs import find_index, find_run
from backend.schemas import (
    ProtectDoneEvent,
    ProtectProgressEvent,
    ProtectRequest,
    SureTokensRequest,
    SureTokensResponse,
)
from backend.settings import Settings
from trainer.errors import TooLongError
from trainer.protect_config import ProtectConfig

if TYPE_CHECKING:
    from trainer.language_model import LanguageModel
    from trainer.privacy.by_token import SureToken
    from trainer.privacy.descent import Checked
    from trainer.privacy.protect import Outcome, Protection
    from trainer.run import Run

T = TypeVar("T")

OTHER_TOKENS = 32_768
"""Of the indexed text that are read, to fit, to choose and to measure on."""
BUSY_SECONDS = 0.5
"""Between two tries where so many requests are being worked on that a step has no place."""

Told = ProtectProgressEvent | ProtectDoneEvent


@dataclass(frozen=True)
class Protecting:
    """What it takes: the language models, the store, the folder of the runs."""

    live: LiveEngine
    store: Engine
    settings: Settings

    async def protect(self, request: ProtectRequest) -> AsyncGenerator[Sequence[Told], None]:
        """Protect passages, and write the new runs; closing the generator ends it, with nothing written.

        Raises:
            BusyError: too many requests are waiting.
            UserError: a run, a passage or a name cannot be used, or no step has made anything better.
        """
        ids_SL = await asyncio.to_thread(self._other_text, request)
        config = ProtectConfig(
            **request.model_dump(include=_SETTINGS), tokens=OTHER_TOKENS, batch=_batch(ids_SL), check_every=2
        )
        protection = await self.live.while_wanted(
            request.runs, lambda runs, _gone: lambda model: self._begun(model, runs, request, ids_SL, config)
        )
        yield (ProtectProgressEvent(step=0, of=config.steps, **_figures(protection.begins)),)
        while protection.taken < config.steps:
            checked = await self._in_turn(request.runs, lambda _model: protection.descend())
            yield (ProtectProgressEvent(step=protection.taken, of=config.steps, **_figures(checked)),)
        outcome = await self._in_turn(request.runs, lambda _model: protection.outcome())
        yield (await asyncio.to_thread(self._written, protection, outcome, config),)

    async def tokens(self, request: SureTokensRequest) -> SureTokensResponse:
        """How sure every token of a text is with two sets of runs.

        Raises:
            BusyError: too many requests are waiting.
            UserError: the runs or the text cannot be used.
        """
        started, count = time.perf_counter(), len(request.before)
        found = await self.live.while_wanted(
            (*request.before, *request.after),
            lambda runs, _gone: lambda model: self._by_token(model, runs[:count], runs[count:], request.text),
        )
        took_ms = (time.perf_counter() - started) * 1000
        return SureTokensResponse.model_validate({"tokens": found, "took_ms": took_ms}, from_attributes=True)

    async def _in_turn(self, names: Sequence[str], work: Callable[[LanguageModel], T]) -> T:
        """Work in between other work; it has been admitted once, so it waits where there is no place."""
        while True:
            try:
                return await self.live.while_wanted(names, lambda _runs, _gone: work)
            except BusyError:
                await asyncio.sleep(BUSY_SECONDS)

    def _other_text(self, request: ProtectRequest) -> npt.NDArray[np.int64]:
        with reading(self.store) as session:
            records = [find_run(session, name) for name in request.runs]
            return indexed_text(session, records[0], OTHER_TOKENS, seed=0)

    def _begun(
        self,
        language_model: LanguageModel,
        runs: Sequence[Run],
        request: ProtectRequest,
        ids_SL: npt.NDArray[np.int64],
        config: ProtectConfig,
    ) -> Protection:
        import torch

        from trainer.in_place import names_of
        from trainer.privacy.passages import Passage, checked
        from trainer.privacy.protect import Protection
        from trainer.privacy.write import refuse_known

        runs = sorted(runs, key=lambda run: run.config.layer)
        names = names_of(runs, request.name)
        refuse_known(names, self.settings.data, self.store)
        passages = checked([Passage(it.text, it.paraphrases) for it in request.passages], "The request")
        for passage in passages:
            for text in (passage.text, *passage.paraphrases):
                self._check_length(language_model, text)
        return Protection(language_model, runs, names, passages, torch.from_numpy(ids_SL), config)

    def _by_token(
        self, language_model: LanguageModel, before: Sequence[Run], after: Sequence[Run], text: str
    ) -> list[SureToken]:
        from trainer.privacy.by_token import by_token

        self._check_length(language_model, text)
        return by_token(language_model, before, after, text)

    def _check_length(self, language_model: LanguageModel, text: str) -> None:
        from trainer.routing import prompt_ids

        found, limit = len(prompt_ids(language_model, text)), self.settings.prompt_tokens
        if found > limit:
            raise TooLongError(f"The passage has {found} tokens and this server takes {limit}; cut it in two.")

    def _written(self, protection: Protection, outcome: Outcome, config: ProtectConfig) -> ProtectDoneEvent:
        from trainer.privacy.write import write_outcome

        with reading(self.store) as session:
            text = find_index(session, find_run(session, protection.runs[0].name)).text
        write_outcome(protection.runs, outcome, config, text, self.settings.data, self.store)
        with reading(self.store) as session:
            return ProtectDoneEvent(protected=newest_of(session, outcome.result.runs[0]))


_SETTINGS = {"theta", "steps", "learning_rate", "after", "most_added", "loss"}


def _batch(ids_SL: npt.NDArray[np.int64]) -> int:
    """Tokens of other text a step: few, so that others wait for little."""
    return 8 * int(ids_SL.shape[1])


def _figures(checked: Checked) -> dict[str, float]:
    return {"confidence_distance": checked.protected.confidence_distance, "added": checked.added}
