"""Hugging Face Hub repositories: download and upload."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from mxd.trainer.errors import NotFoundError, UserError

TIMEOUT_S = 3.0


def looks_like_path(source: str) -> bool:
    """Return whether ``source`` can only be a local path, not a Hub repository name."""
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or Path(source).exists()


def fetch_repository(name: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Download the files of a repository that match ``patterns``, or reuse cached ones. Returns their folder.

    Raises:
        NotFoundError: there is no such repository.
        UserError: the Hub is unreachable and nothing is cached, or the repository cannot be read.
    """
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
    """Upload a folder in one commit, creating the repository if needed. Returns the URL of the commit.

    Raises:
        UserError: the Hub is unreachable, or the token has no write access.
    """
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


def first_line(error: Exception) -> str:
    """First line of an error message, without its final punctuation."""
    lines = [line.strip().rstrip(".:;") for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def endpoint() -> str:
    """URL of the Hub: ``HF_ENDPOINT``, or the public one."""
    from huggingface_hub import constants

    url: str = constants.ENDPOINT
    return url


def is_unreachable() -> bool:
    """Return whether the Hub does not answer within a few seconds, including failed name look-ups.

    False with ``HF_HUB_OFFLINE``, where the Hub clients do not use the network.
    """
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
