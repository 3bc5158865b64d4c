"""Random experts of similar density, the control of every claim about an expert."""

from __future__ import annotations

import random
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from mxd.backend.cli.mcp.api import Api
from mxd.trainer.config import Edit

SIMILAR = (1.5, 4.0, 1e9)
"""Largest ratios of densities, tried in this order until there is another expert."""


async def random_experts(
    api: Api, run: str, expert: int, count: int, seed: int, avoided: frozenset[int] = frozenset()
) -> list[int]:
    """Return up to ``count`` random active experts whose density is similar to that of ``expert``.

    Raises:
        ToolError: the run has no other active expert.
    """
    density = (await api.get(f"/runs/{run}/experts/{expert}"))["row"]["density"]
    similar: list[int] = []
    for ratio in SIMILAR:
        bounds = {"min_density": max(density / ratio, 1e-9), "max_density": min(density * ratio, 1.0) or 1.0}
        page = await api.get(f"/runs/{run}/experts", sort="density", order="desc", limit=100, **bounds)
        similar = [row["expert"] for row in page["experts"] if row["expert"] not in {expert, *avoided}]
        if len(similar) >= count:
            break
    if not similar:
        raise ToolError(f"Run '{run}' has no other active expert that could serve as a control.")
    return random.Random(f"{seed} {run} {expert}").sample(similar, min(count, len(similar)))


async def control_edits(api: Api, run: str, edits: list[Edit], seed: int) -> list[Edit]:
    """Return the same edits of random experts of similar density, in those experts' own units."""
    chosen: dict[tuple[str, int], int] = {}
    for edit in edits:
        name = edit.run or run
        avoided = frozenset(other.expert for other in edits if (other.run or run) == name)
        if (name, edit.expert) not in chosen:
            taken = frozenset(expert for (other, _), expert in chosen.items() if other == name)
            (drawn,) = await random_experts(api, name, edit.expert, 1, seed, avoided | taken)
            chosen[name, edit.expert] = drawn
    return [edit.model_copy(update={"expert": chosen[edit.run or run, edit.expert]}) for edit in edits]


def shown_edits(edits: list[Edit]) -> list[str]:
    """Return edits as compact text."""
    return [str(edit) for edit in edits]


def as_bodies(edits: list[Edit]) -> list[dict[str, Any]]:
    """Return edits as JSON."""
    return [edit.model_dump(mode="json") for edit in edits]
