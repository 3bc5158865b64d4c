"""Portable copies of a run, without local paths."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from mxd.trainer.config import Origin, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.utils.files import disk_errors

TOKENIZER_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
"""Tokenizer files to copy. None of them is code or a pickle."""


def portable(config: TrainConfig, language_model: str | None) -> TrainConfig:
    """Return the config without local paths: only their last component is kept.

    Args:
        language_model: public name of the language model; None keeps the config's name.
    """
    origin = config.origin
    return config.model_copy(
        update={
            "language_model": language_model or without_folder(config.language_model),
            "text": config.text.model_copy(update={"dataset": without_folder(config.text.dataset)}),
            "origin": origin and Origin.model_validate(origin.model_dump() | {"source": without_folder(origin.source)}),
        }
    )


def is_hub_name(source: str) -> bool:
    """Return whether a language model is a Hugging Face Hub name rather than a local folder."""
    return not Path(source).expanduser().exists() and source.count("/") <= 1 and not source.startswith((".", "/", "~"))


def without_folder(source: str) -> str:
    """Return a Hub name as it is, and of a local path only its last component."""
    return source if is_hub_name(source) else Path(source).expanduser().resolve().name


def check_empty_folder(folder: Path) -> None:
    """Check that a target folder is new or empty.

    Raises:
        UserError: it is not.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"The target folder is not empty: {folder}. Choose a new one.")


def check_no_links(folder: Path) -> None:
    """Check that a stranger's folder links to no other: the target, which may be private, would be copied.

    The Hub's cache links from its snapshots to its own ``blobs``.

    Raises:
        UserError: it does.
    """
    root = folder.resolve()
    inside = (root, *([root.parent.parent / "blobs"] if root.parent.name == "snapshots" else []))
    for path in sorted(root.rglob("*")):
        if path.is_symlink() and not any(path.resolve().is_relative_to(place) for place in inside):
            raise UserError(f"{path} links to another folder. Replace the link with the file, if you trust the folder.")


def copy_files(paths: Iterable[Path], target: Path) -> None:
    """Copy the files that exist."""
    with disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.is_file():
                shutil.copyfile(path, target / path.name)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy a tokenizer."""
    copy_files(sorted(path for pattern in TOKENIZER_FILES for path in source.glob(pattern)), target)
