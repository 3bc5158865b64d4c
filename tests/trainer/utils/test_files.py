"""Lock files held by another process, and the encoding of text files."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxd.trainer.errors import UserError
from mxd.trainer.utils.files import exclusive_lock, is_locked

HOLD = """
import sys, pathlib
from mxd.trainer.utils.files import exclusive_lock
with exclusive_lock(pathlib.Path(sys.argv[1]), "It is held"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "lock"


@pytest.fixture
def holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_gets_an_error_that_names_the_task(lock: Path, holder: subprocess.Popen[str]) -> None:
    assert is_locked(lock)
    message = r"^Run 'a' is being trained by another process\. Wait for it"
    with pytest.raises(UserError, match=message), exclusive_lock(lock, "Run 'a' is being trained"):
        pass
    holder.kill()
    holder.wait()
    assert not is_locked(lock), "the kernel releases the lock of a killed process"
    with exclusive_lock(lock, "Run 'a' is being trained"):
        assert is_locked(lock)
    assert not is_locked(lock)


def test_probing_a_missing_lock_creates_no_file(lock: Path) -> None:
    assert not is_locked(lock)
    assert not lock.exists()


def test_text_is_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, mxd.trainer.utils.files as f; f.atomic_write(pathlib.Path(sys.argv[1]), 'Gr\\xfc\\xdfe')"
    )
    ascii_only = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", code, tmp_path / "text"], env=ascii_only, check=True)
    assert (tmp_path / "text").read_text("utf-8") == "Grüße"
