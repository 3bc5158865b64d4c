"""What the routes work with: one frozen object on the application."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Path, Request
from sqlalchemy import Engine

from backend.access.guard import Doorkeeper
from backend.answers import Kept
from backend.library import Library
from backend.live import LiveEngine
from backend.observing import Observations
from backend.queries.browsing import Browsing
from backend.queries.held import HeldPerIndex, HeldPerPair
from backend.queries.matched import MatchedExperts
from backend.queries.together import Together
from backend.settings import Settings
from trainer.chat import Turn, chat_text


@dataclass(frozen=True)
class Services:
    """Made once at start."""

    settings: Settings
    store: Engine
    library: Library
    live: LiveEngine
    browsing: Browsing
    together: HeldPerIndex[Together]
    matches: HeldPerPair[MatchedExperts]
    figures: dict[str, HeldPerIndex[Kept]]
    """Those that read every expert: made once and sent often."""
    chance: random.Random
    doorkeeper: Doorkeeper
    observations: Observations


async def services(request: Request) -> Services:
    """Those of the application that answers."""
    # Not a plain function: for those each request would wait for a thread of its own.
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(services)]
RunName = Annotated[str, Path(max_length=200, description="Name of the run.")]
ExpertId = Annotated[int, Path(ge=0, lt=2**31, description="Id of the expert.")]


def prompt_text(services: Services, run: str, text: str, turns: Sequence[Turn]) -> str:
    """The text to read: chat turns, where there are any, as the template of the run's tokenizer writes them.

    Raises:
        UserError: the tokenizer has no template, or it does not take these turns.
    """
    return chat_text(services.library.run(run).tokenizer, turns) if turns else text
