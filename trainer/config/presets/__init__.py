"""Presets: training settings for open language models, used by ``mxd train --config NAME`` if there is no such file.

One TOML file per language model, in the format of any config file. The dataset is the user's, and every setting can be
overridden. Layer and number of experts are the paper's if it states them, otherwise the middle block and matched
parameters. Tokens and learning rate are for a first look, not the paper's 480M tokens at 1e-4.
"""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Preset:
    """Training settings for one language model."""

    name: str
    language_model: str
    layer: int
    num_experts: int | None
    """Number of experts N; None to match the parameters of a transcoder with 32 features per input value."""
    k: int
    tokens: str

    @classmethod
    def read(cls, path: Path) -> Self:
        values = tomllib.loads(path.read_text("utf-8"))
        settings: dict[str, Any] = {name: values.get(name.replace("_", "-")) for name in cls.__annotations__}
        return cls(**settings | {"name": path.stem})


def presets() -> tuple[Preset, ...]:
    return tuple(Preset.read(path) for path in sorted(FOLDER.glob("*.toml")))


def preset_file(name: str) -> Path | None:
    return next((path for path in FOLDER.glob("*.toml") if path.stem == name), None)


def shape_of(name: str) -> dict[str, Any]:
    """Architecture and sizes of a preset's language model, as in its config. Raises KeyError if there is no preset of
    this name."""
    shape: dict[str, Any] = json.loads((FOLDER / "shapes.json").read_text("utf-8"))[name]
    return shape


def known_shape(language_model: str) -> dict[str, Any] | None:
    """``shape_of`` a language model of this Hub name, which needs no network; None if no preset has it."""
    return next((shape_of(preset.name) for preset in presets() if preset.language_model == language_model), None)
