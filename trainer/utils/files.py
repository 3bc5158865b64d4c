"""Atomic writes, which survive a power cut, and lock files."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mxd.trainer.errors import UserError

PROBE_SECONDS = 0.02
"""How long to retry an acquired lock: ``is_locked`` of another process holds it for an instant."""


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces ``target`` atomically on exit. After an error nothing is left of it."""
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
        # After success it no longer exists.
        shutil.rmtree(partial, ignore_errors=True)


def read_json(path: Path) -> Any:
    """Parse a JSON file.

    Raises:
        ValueError: the content is not valid JSON, is nested too deeply, or has strings that are not Unicode text.
    """
    content = path.read_text("utf-8")
    try:
        value = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if "\\ud" in content.lower():  # an escape can be half of a character, which nothing could write again
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def atomic_write(target: Path, content: str) -> None:
    """Replace a text file atomically."""
    partial = target.with_name(f".{target.name}.partial")
    with disk_errors(target):
        partial.write_text(content)
        _sync(partial)
        partial.replace(target)
        _sync(target.parent)


@contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn errors of a full or read-only disk into a UserError about ``target``."""
    try:
        yield
    except OSError as error:
        reasons = {
            errno.ENOSPC: "the disk is full",
            errno.EROFS: "the disk is read-only",
            errno.EACCES: "not permitted",
            errno.EFBIG: "it would grow too large",
            errno.EDQUOT: "the disk quota is used up",
            errno.EIO: "the disk is failing",
        }
        if error.errno not in reasons:
            raise
        raise UserError(
            f"Cannot write {target}: {reasons[error.errno]}. Free some space, or set MXD_DATA to another folder."
        ) from error


@contextmanager
def exclusive_lock(path: Path, task: str) -> Iterator[None]:
    """Hold the lock file ``path``. The kernel releases it when the process ends.

    Raises:
        UserError: another process holds it. The message begins with ``task``.
    """
    lock = FileLock(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=PROBE_SECONDS, poll_interval=PROBE_SECONDS / 4)
        except Timeout:
            raise UserError(f"{task} by another process. Wait for it or stop it first.") from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock file ``path``; False where it may not be opened."""
    if not path.is_file():
        return False
    try:
        with FileLock(path).acquire(timeout=PROBE_SECONDS, poll_interval=PROBE_SECONDS / 4):
            return False
    except Timeout:
        return True
    except OSError:  # no permission, or a read-only file system
        return False


def finite(value: Any) -> Any:
    """Replace NaN and infinite numbers, which JSON lacks, by None, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
