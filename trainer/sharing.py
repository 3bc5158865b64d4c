"""A run as a folder that others use: weights, settings, tokenizer and a card, and nothing of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from trainer.config import Origin, TrainConfig
from trainer.errors import UserError
from trainer.files import disk_errors

TOKENIZER_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
"""Of a tokenizer's folder; none of them is code or a pickle."""


def portable(config: TrainConfig, language_model: str | None) -> TrainConfig:
    """The settings without the folders of this machine: of a path only its last part is kept.

    Args:
        language_model: what it is called elsewhere, where that is not its name here.
    """
    origin = config.origin
    return config.model_copy(
        update={
            "language_model": language_model or _last_part(config.language_model),
            "text": config.text.model_copy(update={"text": _last_part(config.text.text)}),
            "origin": origin and Origin.model_validate(origin.model_dump() | {"source": _last_part(origin.source)}),
        }
    )


def is_hub_name(source: str) -> bool:
    """Whether a language model's name is one of the hub and no folder here."""
    return not Path(source).expanduser().exists() and source.count("/") <= 1 and not source.startswith((".", "/", "~"))


def _last_part(source: str) -> str:
    return source if is_hub_name(source) else Path(source).expanduser().resolve().name


def refuse_full(folder: Path) -> None:
    """See that a folder to write into is new or empty.

    Raises:
        UserError: something is in it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder; name a new one.")


def copy_files(paths: Iterable[Path], target: Path) -> None:
    """Copy those files that there are."""
    with disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.is_file():
                shutil.copyfile(path, target / path.name)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the files of a tokenizer."""
    copy_files(sorted(path for pattern in TOKENIZER_FILES for path in source.glob(pattern)), target)
