"""Provenance of a measurement: which weights, text, code and packages its numbers belong to."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mxd.trainer.config import TextConfig
from mxd.trainer.data.documents import fingerprint
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import weights_digest

PACKAGES = ("torch", "transformers")
"""Packages that change numbers."""
UNRECORDED = {"date": None, "code": None, "packages": None}
"""Stands for the measurement's own values if it was stored without them."""


def provenance(runs: Iterable[Run], texts: Iterable[TextConfig] = ()) -> dict[str, Any]:
    """Describe a measurement that is made now: digest of each run's weights, fingerprint of each text, and ``code``.

    Raises:
        UserError: a text cannot be read.
    """
    digests = {text.dataset: fingerprint(text) for text in texts}
    names = {dataset: Path(dataset).name for dataset in digests}
    counts = Counter(names.values())
    return {
        "runs": {run.name: weights_digest([run]) for run in runs},
        # Without their folder, unless two files have the same name.
        "texts": {
            names[dataset] if counts[names[dataset]] == 1 else dataset: digest for dataset, digest in digests.items()
        },
        **code(),
    }


def code() -> dict[str, Any]:
    """Date of today, commit or version of the program, and versions of the packages that change numbers."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "code": code_version(),
        "packages": {package: version(package) for package in PACKAGES},
    }


def code_version() -> str:
    """Commit of the program's Git checkout, with ``-dirty`` if files differ from it; otherwise its version."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            pass  # no git, or a checkout of another user
    return version("mxd-explorer")
