"""Sweeps: every combination of several values of a flag, and a run name for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError

T = TypeVar("T")


def _as_tuple(value: object) -> object:
    """Return a single value, as a config file may hold it, as a tuple of one."""
    return value if isinstance(value, list | tuple) else (value,)


Several = Annotated[tuple[T, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
"""One or more values, separated by commas on the command line."""

SHORT = {
    "layer": "l",
    "method": "",
    "num_experts": "n",
    "k": "k",
    "init": "",
    "learning_rate": "lr",
    "seed": "s",
}
"""Setting that a sweep may vary -> prefix of its value in run names."""


def combinations(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return one mapping per combination. The last setting varies fastest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def sweep_values(config: TrainConfig) -> dict[str, Any]:
    """Return the values of one config that a sweep may vary."""
    flat = {**config.optimizer.model_dump(), **config.model_dump()}
    return {name: flat[name] for name in SHORT}


def run_name(pattern: str, values: Mapping[str, Any], varied: Sequence[str]) -> str:
    """Return ``pattern`` with its ``{setting}`` placeholders filled in, followed by the varied settings it lacks.

    Raises:
        UserError: the pattern has an unknown placeholder.
    """
    spellings = {setting.replace("_", "-"): setting for setting in SHORT} | {setting: setting for setting in SHORT}

    def fill(placeholder: re.Match[str]) -> str:
        if placeholder[1] not in spellings:
            known = ", ".join(f"{{{setting.replace('_', '-')}}}" for setting in SHORT)
            raise UserError(f"Unknown placeholder in --name: {placeholder[0]}. Known placeholders: {known}.")
        return _format(values[spellings[placeholder[1]]])

    named = {spellings.get(placeholder) for placeholder in re.findall(r"\{([^{}]*)\}", pattern)}
    suffixes = [f"-{SHORT[setting]}{_format(values[setting])}" for setting in varied if setting not in named]
    return re.sub(r"\{([^{}]*)\}", fill, pattern) + "".join(suffixes)


def _format(value: object) -> str:
    return "auto" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
