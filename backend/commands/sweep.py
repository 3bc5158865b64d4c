"""Several values of a flag: every combination of them, and a name for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from trainer.errors import UserError

T = TypeVar("T")


def _in_a_tuple(value: object) -> object:
    """One value, as a file of settings may have it, as several."""
    return value if isinstance(value, list | tuple) else (value,)


Several = Annotated[tuple[T, ...], BeforeValidator(_in_a_tuple), Field(min_length=1)]
"""One or more values, on the command line with commas between."""

SHORT = {
    "layer": "l",
    "method": "",
    "num_experts": "n",
    "k": "k",
    "gate": "",
    "start": "",
    "learning_rate": "lr",
    "seed": "s",
}
"""What stands before a setting's value in a name."""


def combinations(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """One mapping for each combination, the last setting varying fastest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def run_name(pattern: str, chosen: Mapping[str, Any], varied: Sequence[str]) -> str:
    """A run's name: ``pattern`` with ``{setting}`` filled in, and at its end what varies and has no place in it.

    Raises:
        UserError: the pattern has a place for something else.
    """
    spelled = {setting.replace("_", "-"): setting for setting in SHORT} | {setting: setting for setting in SHORT}

    def filled(place: re.Match[str]) -> str:
        if place[1] not in spelled:
            known = ", ".join(f"{{{setting.replace('_', '-')}}}" for setting in SHORT)
            raise UserError(f"--name has no use for {place[0]}; the places that are filled in are {known}.")
        return _written(chosen[spelled[place[1]]])

    named = {spelled.get(place) for place in re.findall(r"\{([^{}]*)\}", pattern)}
    ends = [f"-{SHORT[setting]}{_written(chosen[setting])}" for setting in varied if setting not in named]
    return re.sub(r"\{([^{}]*)\}", filled, pattern) + "".join(ends)


def _written(value: object) -> str:
    return "auto" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
