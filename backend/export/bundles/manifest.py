"""Contents of a bundle: a zip file in which every entry has a known name.

manifest.json              version, run, and size and SHA-256 of every other entry
run/run.json, layer.json, layer.safetensors, units.json, metrics.json, tokenizer/…
database/TABLE.jsonl       database rows, one JSON document per line
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from mxd.backend.export.bundles.annotations import OF_PEOPLE
from mxd.trainer.config import Config, RunName
from mxd.trainer.storage.database.rows import RUN_TABLES
from mxd.trainer.storage.run import RUN_FILE, SHARED_FILES

VERSION = 1
MANIFEST = "manifest.json"
RUN, STORE = "run/", "database/"
_TOKENIZER = re.compile(r"run/tokenizer/[A-Za-z0-9_-][A-Za-z0-9._-]*\.(?:json|txt|model|jinja)")
TABLES = {f"{STORE}{name}.jsonl": table for name, table in {**RUN_TABLES, **OF_PEOPLE}.items()}
_NAMES = frozenset({f"{RUN}{name}" for name in (RUN_FILE, *SHARED_FILES)} | TABLES.keys())


class Entry(Config):
    """Manifest record of another entry."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Manifest(Config):
    """The manifest, which is read first."""

    bundle: int
    """Version of the layout."""
    run: RunName
    entries: dict[str, Entry]


def is_known(name: str) -> bool:
    """True if an entry may have this name; known names never leave the target folder."""
    return name in _NAMES or _TOKENIZER.fullmatch(name) is not None
