"""A straight line through measured points, and how far they are from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Line:
    """``start + each * x``."""

    start: float
    each: float
    residual: float | None
    """Largest distance of a point from the line, as a share of the point; None where two points alone make it."""

    @classmethod
    def through(cls, places: Sequence[float], values: Sequence[float]) -> Line | None:
        """The best in least squares; None where there are not two different places."""
        if len(set(places)) < 2:
            return None
        each, start = (float(number) for number in np.polyfit(places, values, 1))
        away = max(abs(start + each * x - y) / abs(y) for x, y in zip(places, values, strict=True))
        return cls(start, each, away if len(set(places)) > 2 else None)

    def at(self, place: float) -> float:
        """Its value there."""
        return self.start + self.each * place
