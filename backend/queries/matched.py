"""What is kept of a comparison of two runs.

Shapes: Q experts that look for their nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.schemas import MatchedBy


@dataclass(frozen=True)
class MatchedExperts:
    """Ids of experts of two runs, place by place, the most used of the first run first."""

    by: MatchedBy
    active: int
    other_active: int
    one_Q: list[int]
    other_Q: list[int]
    cosines_Q: list[float]
    mutual_Q: list[bool]
    median_cosine: float
    chance_cosine: float
