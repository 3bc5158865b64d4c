"""Activations of experts on whole texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def peak_activations(routing: Mapping[str, Any]) -> dict[int, float]:
    """Return the largest activation of each active expert on a routed text, without the start token."""
    peaks: dict[int, float] = {}
    for token in routing["tokens"]:
        for routed in () if token["start"] else token["experts"]:
            peaks[routed["expert"]] = max(peaks.get(routed["expert"], 0.0), routed["coefficient"])
    return peaks
