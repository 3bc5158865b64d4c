"""What is to be imported, and as what."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainer.config import Config, RunName


class ImportConfig(Config):
    """A layer that another program fitted, and what it is to be called here."""

    source: str
    """A file, a folder, or a repository of the hub as OWNER/NAME, also with @REVISION."""
    name: RunName
    language_model: str
    """Hub name or local folder of the language model whose MLP it stands for."""
    layer: Annotated[int, Field(ge=0)] | None = None
    """Which block's MLP, from 0; where the source says so it may be left out."""
    part: str | None = None
    """Folder or file of the layer in the source, where that holds several."""
