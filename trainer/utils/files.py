"""Files: atomic writes, which survive a power cut, locks, and repositories of the Hugging Face Hub."""

import errno
import hashlib
import json
import math
import os
import queue
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from filelock import FileLock, Timeout

from mxd.trainer.errors import LockedError, NotFoundError, UserError

PROBE_SECONDS = 0.02
"""How long to retry an acquired lock: ``is_locked`` of another process holds it for an instant."""


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial_folder(target: Path) -> Path:
    """Folder that ``atomic_directory`` yields. Other processes may write into it while it is open."""
    return target.with_name(f".{target.name}.partial")


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces ``target`` atomically on exit. After an error nothing is left of it."""
    partial = partial_folder(target)
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
    """Parse a JSON file. Raises ValueError if the content is not valid JSON, is nested too deeply, or has strings that
    are not Unicode text."""
    content = path.read_text("utf-8")
    try:
        value = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if "\\ud" in content.lower():  # an escape can be half of a character, which nothing could write again
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def atomic_write(target: Path, content: str) -> None:
    partial = target.with_name(f".{target.name}.partial")
    with disk_errors(target):
        partial.write_text(content, "utf-8")
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
    """Hold the lock file ``path``. The kernel releases it when the process ends. Raises LockedError if another process
    holds it. The message begins with ``task``."""
    lock = FileLock(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=PROBE_SECONDS, poll_interval=PROBE_SECONDS / 4)
        except Timeout:
            raise LockedError(f"{task} by another process. Wait for it or stop it first.") from None
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


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def finite(value: Any) -> Any:
    """Replace NaN and infinite numbers, which JSON lacks, by None, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


TIMEOUT_S = 3.0


def looks_like_path(source: str) -> bool:
    """Return whether ``source`` can only be a local path, not a Hub repository name."""
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or Path(source).exists()


def fetch_repository(name: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Download the files of a repository that match ``patterns``, or reuse cached ones. Returns their folder. Raises
    NotFoundError (there is no such repository) or UserError (the Hub is unreachable and nothing is cached, or the
    repository cannot be read)."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    offline = is_unreachable()
    try:
        folder = snapshot_download(name, revision=revision, allow_patterns=list(patterns), local_files_only=offline)
    except RepositoryNotFoundError as error:
        raise NotFoundError(f"No folder or Hub repository is named '{name}'. Check the name.") from error
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        cause = f"the Hub ({endpoint()}) does not answer" if offline else first_line(error)
        raise UserError(f"Cannot fetch the repository '{name}': {cause}. Check the name and the network.") from error
    return Path(folder)


def upload_folder(folder: Path, name: str, private: bool, message: str) -> str:
    """Upload a folder in one commit, creating the repository if needed. Returns the URL of the commit. Raises UserError
    if the Hub is unreachable, or the token has no write access."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if is_unreachable():
        raise UserError(f"The Hub ({endpoint()}) does not answer. Check the network.")
    api = HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=name, folder_path=folder, commit_message=message)
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise UserError(
            f"Cannot write '{name}' on the Hub: {first_line(error)}. Sign in with: hf auth login, or set HF_TOKEN to a "
            "token with write access, and give the name as OWNER/NAME."
        ) from error
    return str(commit.commit_url)


@contextmanager
def explained(message: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors into a UserError. ``{error}`` in its message stands for the error on one line."""
    try:
        yield
    except errors as error:
        raise UserError(message.replace("{error}", one_line(error))) from error


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".:; ") or type(error).__name__


def first_line(error: Exception) -> str:
    """First line of an error message, without its final punctuation."""
    lines = [line.strip().rstrip(".:;") for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def endpoint() -> str:
    from huggingface_hub import constants

    url: str = constants.ENDPOINT
    return url


def is_unreachable() -> bool:
    """Return whether the Hub does not answer within a few seconds, including failed name look-ups. False with
    ``HF_HUB_OFFLINE``, where the Hub clients do not use the network."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    answers: queue.Queue[bool] = queue.Queue()
    # In a thread, because name look-ups have no timeout.
    threading.Thread(target=lambda: answers.put(_answers(endpoint())), daemon=True).start()
    try:
        return not answers.get(timeout=TIMEOUT_S)
    except queue.Empty:
        return True


def _answers(url: str) -> bool:
    try:
        urlopen(Request(url, method="HEAD"), timeout=TIMEOUT_S).close()
    except HTTPError:
        return True  # any HTTP status is an answer
    except OSError:
        return False
    return True
