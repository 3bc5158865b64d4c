"""Line fit through measured points, with its residuals."""

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
    """Largest relative residual; None if only two points define the line."""

    @classmethod
    def through(cls, places: Sequence[float], values: Sequence[float]) -> Line | None:
        """Return the least-squares line; None without two different x values."""
        if len(set(places)) < 2:
            return None
        each, start = (float(number) for number in np.polyfit(places, values, 1))
        away = max(abs(start + each * x - y) / abs(y) for x, y in zip(places, values, strict=True))
        return cls(start, each, away if len(set(places)) > 2 else None)

    def at(self, place: float) -> float:
        """Return the value at ``x``."""
        return self.start + self.each * place
