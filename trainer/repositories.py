"""Repositories of the hub: fetching one, and putting a folder into one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer import hub
from trainer.errors import NotFoundError, UserError


def looks_like_path(source: str) -> bool:
    """Whether a source can only be meant as a folder, not as a hub name."""
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or Path(source).exists()


def fetch_repository(name: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Where the files of a repository are that match ``patterns``; what was fetched before is not fetched again.

    Raises:
        NotFoundError: there is no such repository.
        UserError: the hub does not answer and it was not fetched before, or it cannot be read.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    away = hub.out_of_reach()
    try:
        folder = snapshot_download(name, revision=revision, allow_patterns=list(patterns), local_files_only=away)
    except RepositoryNotFoundError as error:
        raise NotFoundError(f"There is no folder or repository {name}; check the name.") from error
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        why = f"the hub ({hub.endpoint()}) does not answer" if away else first_line(error)
        raise UserError(f"The repository {name} cannot be fetched ({why}); check the name and the network.") from error
    return Path(folder)


def upload_folder(folder: Path, name: str, private: bool, message: str) -> str:
    """Make a repository, if there is none, and put a folder's files into it in one commit.

    Returns:
        The address of the commit.

    Raises:
        UserError: the hub does not answer, or does not let us.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if hub.out_of_reach():
        raise UserError(f"The hub ({hub.endpoint()}) does not answer; check the network.")
    api = HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=name, folder_path=folder, commit_message=message)
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise UserError(
            f"{name} cannot be written on the hub ({first_line(error)}); sign in with: hf auth login, or set HF_TOKEN "
            "to a token that may write, and give the name as OWNER/NAME."
        ) from error
    return str(commit.commit_url)


def first_line(error: Exception) -> str:
    """What an error says first, without its end."""
    lines = [line.strip().rstrip(".:;") for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
