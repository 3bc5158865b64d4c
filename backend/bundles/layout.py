"""What is in a bundle: a zip file whose every entry has a name that is known.

manifest.json              which version, which run, and of every other entry its bytes and SHA-256
run/run.json, layer.json, layer.safetensors, units.json, metrics.json, tokenizer/…
store/TABLE.jsonl          rows of the store, a JSON document a line
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from backend.bundles.written import OF_PEOPLE
from trainer.config import Config, RunName
from trainer.excerpts import OF_RUNS
from trainer.run import RUN_FILE, SHARED_FILES

VERSION = 1
MANIFEST = "manifest.json"
RUN, STORE = "run/", "store/"
_TOKENIZER = re.compile(r"run/tokenizer/[A-Za-z0-9_-][A-Za-z0-9._-]*\.(?:json|txt|model|jinja)")
TABLES = {f"{STORE}{name}.jsonl": table for name, table in {**OF_RUNS, **OF_PEOPLE}.items()}
_NAMES = frozenset({f"{RUN}{name}" for name in (RUN_FILE, *SHARED_FILES)} | TABLES.keys())


class Entry(Config):
    """What the manifest says of another entry."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Manifest(Config):
    """The first thing that is read."""

    bundle: int
    """Version of the layout."""
    run: RunName
    entries: dict[str, Entry]


def is_known(name: str) -> bool:
    """Whether an entry may have this name; none that is known leaves the folder it is put into."""
    return name in _NAMES or _TOKENIZER.fullmatch(name) is not None
