"""Writing so that a reader, or the next start after a power cut, sees a whole file or folder or none."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.errors import UserError


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A fresh folder to write into that becomes ``target`` on leaving, all at once; on an error nothing stays."""
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with disk_errors(target):
            yield partial
            for path in partial.rglob("*"):
                _sync(path)
            if target.exists():
                shutil.rmtree(target)
            partial.rename(target)
            _sync(target.parent)
    finally:
        # Gone by now where all went well.
        shutil.rmtree(partial, ignore_errors=True)


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        ValueError: whatever is wrong with its content; also a nesting or a number that no parser takes.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def write_whole(target: Path, content: str) -> None:
    """Replace a text file, all at once."""
    partial = target.with_name(f".{target.name}.partial")
    with disk_errors(target):
        partial.write_text(content)
        _sync(partial)
        partial.replace(target)
        _sync(target.parent)


@contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn a full or read-only disk into a sentence."""
    try:
        yield
    except OSError as error:
        reasons = {
            errno.ENOSPC: "the disk is full",
            errno.EROFS: "the disk is read-only",
            errno.EACCES: "not permitted",
            errno.EFBIG: "it would grow too large",
            errno.EDQUOT: "your share of the disk is used up",
            errno.EIO: "the disk is failing",
        }
        if error.errno not in reasons:
            raise
        raise UserError(f"{target} cannot be written ({reasons[error.errno]}); make room or set MXD_DATA.") from error


@contextmanager
def only_one(lock: Path, what: str) -> Iterator[None]:
    """Hold ``lock`` while inside; the kernel lets go of it when the process ends, however it ends.

    Raises:
        UserError: another process holds it.
    """
    with disk_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("a")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{what} by another process; wait for it or stop it first.") from None
        yield


def is_held(lock: Path) -> bool:
    """Whether a living process holds ``lock``."""
    if not lock.is_file():
        return False
    with lock.open("r") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
