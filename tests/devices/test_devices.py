"""The walks of this folder, in a process in which the pretend device is installed.

PyTorch registers a device for the whole process and for good: afterwards every test would find an accelerator.
"""

import os
import sys

import pytest

from tests.helpers.processes import ROOT, Forked

TIMEOUT_SECONDS = 600


def _pytest() -> None:
    sys.exit(pytest.main(sys.argv[1:]))


def test_every_walk() -> None:
    words = ["pytest", "-n", "0", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "tests.devices.plugin"]
    # Plugins were imported, without rewritten assertions, before the process was forked.
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "tests/devices/walks.py"]
    with Forked(_pytest, words, ROOT, os.environ) as process:
        out, errors = process.communicate(TIMEOUT_SECONDS)
        assert process.returncode == 0, out + errors
