"""Whether a text is the one that a run was fitted on."""

from __future__ import annotations

import os
from pathlib import Path

from trainer.config import TextConfig
from trainer.errors import UserError
from trainer.text import fingerprint


def is_seen(text: TextConfig, fitted: TextConfig) -> bool:
    """Whether ``text`` is the text that was fitted on, or a part of its folder. Where that is no longer there, no."""
    here, there = Path(os.path.expanduser(text.text)), Path(os.path.expanduser(fitted.text))
    if here.exists() and there.is_dir() and here.resolve().is_relative_to(there.resolve()):
        return True
    try:
        return fingerprint(text) == fingerprint(fitted)
    except UserError:
        return False


def refuse_seen(name: str, text: TextConfig, fitted: TextConfig) -> None:
    """Insist on text that was held out.

    Raises:
        UserError: it was not.
    """
    if is_seen(text, fitted):
        raise UserError(
            f"The run {name} was fitted on {text.text}, so figures on it would flatter; give --text with held-out "
            "text, or say --seen-text to measure all the same (the result will be marked)."
        )
