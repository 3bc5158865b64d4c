"""Contexts at random over all tokens that an expert is active on, drawn from those that its intervals keep.

An index keeps a few contexts at random from each interval. Intervals hold very different shares of the active tokens,
so the draw chooses an interval first, by the tokens of it that are left, and then one of its contexts: what comes is as
if tokens were drawn one after another from all of them. It ends where the interval wanted has no kept context left; to
take another in its place would bend the shares.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from backend.queries.contexts import describe, stored_contexts
from backend.schemas import RandomContexts
from backend.vocabulary import Vocabulary
from trainer.store import ContextRecord, ExpertRecord, RunRecord


class RandomContextQuery(BaseModel):
    """Which draw, and how far."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Another one draws others; the same one draws the same."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class Place(NamedTuple):
    """A kept context of an expert."""

    interval: int
    rank: int


class Draw(NamedTuple):
    """What came, in order, and the interval that had none left, where that ended it."""

    places: tuple[Place, ...]
    short_of: int | None


def drawn(tokens: Mapping[int, int], kept: Mapping[int, Sequence[int]], limit: int, chance: random.Random) -> Draw:
    """Draw contexts one after another, each active token as likely as any other that is left.

    Args:
        tokens: active tokens of each interval.
        kept: ranks of the contexts that are kept of each interval, which are at random from it.
        limit: most contexts to draw.
        chance: where the draw comes from.
    """
    left = dict(tokens)
    waiting = {interval: chance.sample(list(ranks), len(ranks)) for interval, ranks in sorted(kept.items())}
    places: list[Place] = []
    while len(places) < limit and any(left.values()):
        interval = chance.choices(list(left), weights=list(left.values()))[0]
        if not waiting.get(interval):
            return Draw(tuple(places), short_of=interval)
        places.append(Place(interval, waiting[interval].pop()))
        left[interval] -= 1
    return Draw(tuple(places), short_of=None)


def random_contexts(
    session: Session, run: RunRecord, record: ExpertRecord, query: RandomContextQuery, vocabulary: Vocabulary
) -> RandomContexts:
    """Contexts of an expert at random over all its active tokens."""
    mine = (ContextRecord.run_id == run.id, ContextRecord.expert == record.expert)
    kept: dict[int, list[int]] = {}
    stored = select(ContextRecord.interval, ContextRecord.rank).where(*mine, ContextRecord.interval > 0)
    for interval, rank in session.execute(stored.order_by(ContextRecord.interval, ContextRecord.rank)):
        kept.setdefault(interval, []).append(rank)
    tokens = {interval: int(count) for interval, (_, _, count) in enumerate(record.intervals, start=1)}
    # Of the expert too: experts whose intervals are alike would otherwise be drawn alike.
    draw = drawn(tokens, kept, query.limit, random.Random(f"{query.seed}/{record.expert}"))
    wanted = (*mine, tuple_(ContextRecord.interval, ContextRecord.rank).in_(draw.places))
    found = {Place(context.interval, context.rank): context for context in stored_contexts(session, wanted)}
    return RandomContexts(
        seed=query.seed,
        active_tokens=record.active_tokens,
        short_of=draw.short_of,
        contexts=tuple(describe(found[place], vocabulary) for place in draw.places),
    )
