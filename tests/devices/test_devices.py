"""The walks of this folder, each in a process in which the pretend device is installed.

PyTorch registers a device for the whole process and for good: afterwards every test would find an accelerator.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.helpers.forking.forked import Forked
from tests.helpers.processes import ROOT

WALKS = sorted(path.stem for path in Path(__file__).parent.glob("walk_*.py"))
TIMEOUT_SECONDS = 300


def _pytest() -> None:
    sys.exit(pytest.main(sys.argv[1:]))


@pytest.mark.parametrize("walk", WALKS)
def test_walk(walk: str) -> None:
    # Plugins were imported, without rewritten assertions, before the process was forked.
    words = ["-n", "0", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "tests.devices.plugin"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with Forked(_pytest, ["pytest", *words, f"tests/devices/{walk}.py"], ROOT, os.environ) as process:
        out, errors = process.communicate(TIMEOUT_SECONDS)
        assert process.returncode == 0, out + errors
