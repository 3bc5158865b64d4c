"""Settings of a fit for open language models: what ``mxd train --config NAME`` takes where no such file is at hand.

A file a language model, as anybody could write it. The text is the user's own, and every setting can be given beside
the preset. Layers and experts are the paper's where it has them, else the block in the middle and parameters matched;
tokens and learning rate are for a first look, not the paper's 480M at 1e-4.

``shapes.json`` has what each language model's config says of its sizes, for measurements with random weights.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Preset:
    """A language model, and what to fit on it."""

    name: str
    language_model: str
    layer: int
    num_experts: int | None
    """N; None where it is matched to a transcoder with 32 features for each value that the MLP reads."""
    k: int
    tokens: str

    @classmethod
    def read(cls, path: Path) -> Preset:
        """From its file."""
        values = tomllib.loads(path.read_text("utf-8"))
        return cls(
            name=path.stem,
            language_model=values["language-model"],
            layer=values["layer"],
            num_experts=values.get("num-experts"),
            k=values["k"],
            tokens=values["tokens"],
        )


def presets() -> tuple[Preset, ...]:
    """All there are, by name."""
    return tuple(Preset.read(path) for path in sorted(FOLDER.glob("*.toml")))


def preset_file(name: str) -> Path | None:
    """The file of a preset; None where there is none of this name."""
    return next((path for path in FOLDER.glob("*.toml") if path.stem == name), None)


def shape_of(name: str) -> dict[str, Any]:
    """Architecture and sizes of a preset's language model, as its config has them.

    Raises:
        KeyError: there is no preset of this name.
    """
    shape: dict[str, Any] = json.loads((FOLDER / "shapes.json").read_text("utf-8"))[name]
    return shape
