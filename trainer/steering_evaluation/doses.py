"""What one strength did to texts, and the medians over experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["none", "expert", "other", "direction"]
KINDS: tuple[Kind, ...] = ("expert", "other", "direction")


@dataclass(frozen=True)
class Dose:
    """What one strength did to the texts, on average over prompts and samples."""

    expert: int
    kind: Kind
    """none: nothing is added. expert: the expert. other: a random one of the same usage. direction: a random direction
    of the expert's length."""
    strength: float
    """In units of the 99th percentile."""
    kl: float
    """Nats a token from the untouched next-token distribution."""
    loss: float
    """Nats a token of the written text under the untouched language model."""
    self_similarity: float
    """Mean cosine between the token counts of the samples of a prompt."""
    promoted_share: float
    """Of written tokens that are among those that the expert promotes most."""


def medians(doses: Sequence[Dose]) -> dict[Kind, dict[float, dict[str, float]]]:
    """Kind -> strength -> median over experts of each figure."""
    names = ("kl", "loss", "self_similarity", "promoted_share")
    found: dict[Kind, dict[float, dict[str, float]]] = {}
    for kind, strength in dict.fromkeys((dose.kind, dose.strength) for dose in doses):
        of = [dose for dose in doses if (dose.kind, dose.strength) == (kind, strength)]
        figures = {name: float(np.median([getattr(dose, name) for dose in of])) for name in names}
        found.setdefault(kind, {})[strength] = figures
    return found
