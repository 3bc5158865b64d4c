"""Which experts fire on a passage, ranked by how much, or by how much more than elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from backend.notes import labels_of
from backend.queries.automatic import shown_labels
from backend.queries.experts import known, top_tokens
from backend.schemas import PassageHit, PassageRequest, PassageResult, PassageToken
from backend.vocabulary import Vocabulary
from trainer.errors import UserError
from trainer.store import ExpertRecord, RunRecord

if TYPE_CHECKING:
    from trainer.routing import RoutedToken, Routing


@dataclass(frozen=True)
class Firing:
    """What one expert does on the tokens that are looked at."""

    expert: int
    active: tuple[tuple[int, float], ...]
    """(position, coefficient)"""
    tokens: int
    """That are looked at."""
    usage: float | None

    @property
    def mass(self) -> float:
        """Sum of its coefficients."""
        return sum(coefficient for _, coefficient in self.active)

    @property
    def share(self) -> float:
        """Of the tokens, those on which it is active."""
        return len(self.active) / self.tokens

    @property
    def lift(self) -> float | None:
        """Its share here over its usage."""
        return self.share / self.usage if self.usage else None


def firings(tokens: Sequence[RoutedToken], position: int | None) -> dict[int, list[tuple[int, float]]]:
    """Expert -> (position, coefficient) wherever it is active among the tokens that are looked at.

    Raises:
        UserError: the passage has no such token.
    """
    if position is not None and position >= len(tokens):
        raise UserError(f"The passage has tokens 0 to {len(tokens) - 1}; there is no token {position}.")
    found: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for place, token in enumerate(tokens):
        if place == position or (position is None and not token.start):
            for expert in token.experts:
                found[expert.expert].append((place, expert.coefficient))
    return found


def ranked(found: Mapping[int, Firing], request: PassageRequest) -> list[Firing]:
    """Those within the bounds, best first. An expert without a usage comes after those that have one, by lift."""
    low, high = request.min_usage, request.max_usage
    kept = [
        firing
        for firing in found.values()
        if (low is None or (firing.usage or 0.0) >= low) and (high is None or (firing.usage or 0.0) <= high)
    ]
    if request.by == "mass":
        return sorted(kept, key=lambda firing: (-firing.mass, firing.expert))
    return sorted(kept, key=lambda firing: (-(firing.lift or 0.0), -firing.mass, firing.expert))


def passage_result(
    session: Session,
    run: RunRecord,
    routing: Routing,
    request: PassageRequest,
    vocabulary: Vocabulary,
    took_ms: float,
) -> PassageResult:
    """The experts that fire on a routed passage.

    Raises:
        UserError: the passage has no token at the position asked for.
    """
    found = firings(routing.tokens, request.position)
    looked_at = 1 if request.position is not None else max(sum(not token.start for token in routing.tokens), 1)
    records = known(session, run, found)
    described = {
        expert: Firing(expert, tuple(active), looked_at, records[expert].usage if expert in records else None)
        for expert, active in found.items()
    }
    kept = ranked(described, request)
    shown = kept[: request.limit]
    ids = [firing.expert for firing in shown]
    labels, automatic = labels_of(session, run.name, ids), shown_labels(session, run, ids)
    return PassageResult(
        run=run.name,
        tokens=tuple(PassageToken(id=token.id, text=token.text, start=token.start) for token in routing.tokens),
        hits=tuple(
            _hit(firing, records.get(firing.expert), vocabulary).model_copy(
                update={"label": labels.get(firing.expert), "automatic": automatic.get(firing.expert)}
            )
            for firing in shown
        ),
        matching=len(kept),
        firing=len(found),
        took_ms=took_ms,
    )


def _hit(firing: Firing, record: ExpertRecord | None, vocabulary: Vocabulary) -> PassageHit:
    return PassageHit(
        expert=firing.expert,
        label=None,
        automatic=None,
        mass=firing.mass,
        share=firing.share,
        lift=firing.lift,
        usage=firing.usage,
        largest=record.largest if record else None,
        peak=max(firing.active, key=lambda one: one[1])[0],
        active=firing.active,
        top_tokens=top_tokens(record, vocabulary) if record else (),
    )
