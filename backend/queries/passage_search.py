"""Experts that are active on a passage, ranked by summed activation or by lift."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_of
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.backend.queries.experts import known, top_tokens
from mxd.backend.schemas.search import PassageHit, PassageRequest, PassageResult, PassageToken
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.utils.bootstrap import wilson_interval

if TYPE_CHECKING:
    from mxd.trainer.inference.results import RoutedToken, Routing


@dataclass(frozen=True)
class Firing:
    """Activations of an expert on the considered tokens."""

    expert: int
    active: tuple[tuple[int, float], ...]
    """(position, activation) of each active token."""
    tokens: int
    """Number of considered tokens."""
    density: float | None

    @property
    def mass(self) -> float:
        """Sum of its activations."""
        return sum(activation for _, activation in self.active)

    @property
    def share(self) -> float:
        """Share of the considered tokens on which it is active."""
        return len(self.active) / self.tokens

    @property
    def lift(self) -> float | None:
        """Share divided by density; None for dead or unindexed experts."""
        return self.share / self.density if self.density else None

    @property
    def lift_interval(self) -> tuple[float, float] | None:
        """Interval of the share divided by density: the passage has far fewer tokens than the index."""
        if not self.density:
            return None
        low, high = wilson_interval(self.share, self.tokens)
        return low / self.density, high / self.density


def firings(tokens: Sequence[RoutedToken], position: int | None) -> dict[int, list[tuple[int, float]]]:
    """Return expert -> (position, activation) on the considered tokens.

    Raises UserError: the position is out of range.
    """
    if position is not None and position >= len(tokens):
        raise UserError(f"Unknown token {position}. The passage has tokens 0 to {len(tokens) - 1}.")
    firing: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for place, token in enumerate(tokens):
        if place == position or (position is None and not token.start):
            for expert in token.experts:
                firing[expert.expert].append((place, expert.activation))
    return firing


def ranked(firings_of: Mapping[int, Firing], request: PassageRequest) -> list[Firing]:
    """Return the experts within the bounds, best first.

    By lift, the lower end of its interval counts, and experts without a density come last.
    """
    low, high = request.min_density, request.max_density
    best = [
        firing
        for firing in firings_of.values()
        if (low is None or (firing.density or 0.0) >= low) and (high is None or (firing.density or 0.0) <= high)
    ]
    if request.by == "mass":
        return sorted(best, key=lambda firing: (-firing.mass, firing.expert))
    return sorted(best, key=lambda firing: (-(firing.lift_interval or (0.0,))[0], -firing.mass, firing.expert))


def passage_result(
    session: Session, run: RunRecord, routing: Routing, request: PassageRequest, vocabulary: Vocabulary
) -> PassageResult:
    """Return the ranked experts of a routed passage.

    Raises UserError: the position is out of range.
    """
    firings_of = firings(routing.tokens, request.position)
    num_tokens = 1 if request.position is not None else max(sum(not token.start for token in routing.tokens), 1)
    records = known(session, run, firings_of)
    described = {
        expert: Firing(expert, tuple(active), num_tokens, records[expert].density if expert in records else None)
        for expert, active in firings_of.items()
    }
    best = ranked(described, request)
    shown = best[: request.limit]
    ids = [firing.expert for firing in shown]
    labels, automatic = labels_of(session, run.name, ids), shown_labels(session, run, ids)
    hits = []
    for firing in shown:
        record, (low, high) = records.get(firing.expert), firing.lift_interval or (None, None)
        hits.append(
            PassageHit(
                **{name: getattr(firing, name) for name in ("expert", "mass", "share", "lift", "density", "active")},
                label=labels.get(firing.expert),
                automatic=automatic.get(firing.expert),
                lift_low=low,
                lift_high=high,
                max_activation=record.max_activation if record else None,
                peak=max(firing.active, key=lambda pair: pair[1])[0],
                top_tokens=top_tokens(record, vocabulary) if record else (),
            )
        )
    return PassageResult(
        run=run.name,
        tokens=tuple(PassageToken(id=token.id, text=token.text, start=token.start) for token in routing.tokens),
        hits=tuple(hits),
        matching=len(best),
        firing=len(firings_of),
    )
