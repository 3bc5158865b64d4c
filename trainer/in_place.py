"""Runs that are in place of their MLPs together, and what new ones are called that begin as them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from trainer.config import RunName
from trainer.errors import UserError

if TYPE_CHECKING:
    from trainer.run import Run

PLACE = "{run}"
"""In a pattern of names: where the name of the run stands that a new one begins as."""
_NAMES = TypeAdapter[str](RunName)


def refuse_apart(runs: Sequence[Run]) -> None:
    """See that runs can be in place together.

    Raises:
        UserError: they are of several language models, or two write one layer.
    """
    sources = {run.language_model_source for run in runs}
    if len(sources) > 1:
        raise UserError(f"The runs are of several language models ({', '.join(sorted(sources))}); name those of one.")
    refuse_overlapping(runs)


def refuse_overlapping(runs: Sequence[Run]) -> None:
    """See that no two runs write one layer.

    Raises:
        UserError: two do.
    """
    layer, times = Counter(layer for run in runs for layer in run.config.layers).most_common(1)[0]
    if times > 1:
        alike = " and ".join(run.name for run in runs if layer in run.config.layers)
        raise UserError(f"{alike} replace the same layer, {layer}, in which one alone can be; leave out the other.")


def names_of(runs: Sequence[Run], pattern: str) -> list[str]:
    """What the new runs are called.

    Raises:
        UserError: two would be called the same, or one as no run can be.
    """
    named = [pattern.replace(PLACE, run.name) for run in runs]
    for name in named:
        try:
            _NAMES.validate_python(name)
        except ValidationError as error:
            raise UserError(
                f"A run cannot be named {name[:120]!r}; use letters, digits, '.', '_' and '-', 100 at most."
            ) from error
    twice, times = Counter(named).most_common(1)[0]
    if times > 1:
        raise UserError(f"{times} runs would be named {twice}; put {PLACE} into --name where the run's own name goes.")
    return named
