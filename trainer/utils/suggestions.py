"""Error messages about unknown names, with the nearest known name as a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the name in ``known`` nearest to ``name``, or with these initials, such as
    ``lr`` for ``learning_rate``; nothing if none is near."""
    names = list(known)
    initials = [other for other in names if "".join(word[:1] for word in re.split("[_-]", other)) == name]
    nearest = get_close_matches(name, names, n=1) or initials
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


def unknown_run(name: str, known: Iterable[str]) -> str:
    """Return the error message for a run that does not exist."""
    names = list(known)
    if not names:
        return f"Unknown run '{name}'. There are no runs yet. Train one with 'mxd train'."
    return f"Unknown run '{name}'.{suggest(name, names)} Run 'mxd runs' for a list."


def unknown_expert(expert: int, run: str, num_experts: int) -> str:
    """Return the error message for an expert id that a run does not have."""
    return f"Unknown expert {expert}. Run '{run}' has experts 0 to {num_experts - 1}."
