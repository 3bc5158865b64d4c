"""The services that routes use: one frozen object on the application."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Path, Request
from sqlalchemy import Engine

from mxd.backend.api.access import Authenticator
from mxd.backend.api.middleware import Metrics
from mxd.backend.caches import StampedCache
from mxd.backend.database.write_access import WriteAccess
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.inference.service import ChatFormatter, InferenceService
from mxd.backend.queries.coactivation import CoactivationIndex
from mxd.backend.queries.expert_table import RunCache
from mxd.backend.settings import Settings
from mxd.trainer.language_model.chat_template import Turn

if TYPE_CHECKING:
    from mxd.backend.queries.matching import MatchedExperts


@dataclass(frozen=True)
class Services:
    """Services, created once at start-up."""

    settings: Settings
    database: Engine
    """For reading."""
    writes: WriteAccess
    runs: RunLoader
    inference: InferenceService
    chats: ChatFormatter
    run_cache: RunCache
    coactivation: StampedCache[CoactivationIndex]
    matches: StampedCache[MatchedExperts]
    figures: StampedCache[bytes]
    downloads: BoundedSemaphore
    """Bundles that may be downloaded at the same time."""
    rng: random.Random
    authenticator: Authenticator
    metrics: Metrics


async def services(request: Request) -> Services:
    """Return the services of the application that handles the request."""
    # Async, because FastAPI would run a plain function in a thread per request.
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(services)]


async def writer(services: ServicesDep) -> AsyncIterator[Engine]:
    """Yield an engine to write with, when it is the request's turn."""
    async with services.writes.turn() as engine:
        yield engine


# The turn ends with the handler, not when the client has read the response.
WriterDep = Annotated[Engine, Depends(writer, scope="function")]
RunName = Annotated[str, Path(max_length=200, description="Name of the run.")]
ExpertId = Annotated[int, Path(ge=0, lt=2**31, description="Id of the expert.")]


async def prompt_text(services: Services, run: str, text: str, turns: Sequence[Turn]) -> str:
    """Return the prompt; chat turns are formatted by the chat template of the run's tokenizer. Raises BusyError if
    other chats take too long, UserError if the tokenizer has no template, or the template rejects these turns."""
    return await services.chats.text(run, turns) if turns else text
