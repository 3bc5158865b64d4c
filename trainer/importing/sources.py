"""Where outside files are: a file, a folder or a repository of the hub, of which only what is read is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainer import hub
from trainer.errors import NotFoundError, UserError
from trainer.repositories import first_line, looks_like_path

MOST_FILES = 100_000
"""Of a folder; with more it is not one of layers."""


class Source(Protocol):
    """Files with relative names, some of which are read."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def revision(self) -> str | None:
        """The commit, of a repository."""
        ...

    def names(self) -> Sequence[str]:
        """Relative names of all files, with ``/`` between folders."""
        ...

    def fetch(self, name: str) -> Path:
        """Where one of them can be read."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder, or one file in it."""

    root: Path
    only: str | None = None
    """The one file that was named."""

    @property
    def name(self) -> str:
        """Its full path."""
        return str((self.root / self.only if self.only else self.root).resolve())

    @property
    def revision(self) -> str | None:
        """Folders have none."""
        return None

    def names(self) -> list[str]:
        """The one file, or all that lie below the folder."""
        if self.only is not None:
            return [self.only]
        found = []
        for path in self.root.rglob("*"):
            if path.is_file():
                found.append(path.relative_to(self.root).as_posix())
            if len(found) > MOST_FILES:
                raise UserError(f"{self.root} holds more than {MOST_FILES:,} files; name the folder of one layer.")
        return sorted(found)

    def fetch(self, name: str) -> Path:
        """Its path."""
        return self.root / name


@dataclass(frozen=True)
class Repository:
    """A repository of the hub at one commit."""

    name: str
    revision: str
    files: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        """Of all its files."""
        return self.files

    def fetch(self, name: str) -> Path:
        """Download one file, or find it where it was downloaded before."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError

        try:
            return Path(hf_hub_download(self.name, name, revision=self.revision))
        except (OSError, ValueError, HfHubHTTPError) as error:
            raise UserError(f"{name} of {self.name} cannot be fetched from the hub ({first_line(error)}).") from error


def open_source(source: str) -> Source:
    """What a person named: a file, a folder, or ``OWNER/NAME`` on the hub, also with ``@REVISION``.

    Raises:
        NotFoundError: there is no such file, folder or repository.
        UserError: the hub cannot be reached.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return Folder(path)
    if path.is_file():
        return Folder(path.parent, path.name)
    name, _, revision = source.partition("@")
    if looks_like_path(source) or name.count("/") != 1:
        raise NotFoundError(f"There is no file or folder {source}; give one, or a repository of the hub as OWNER/NAME.")
    return _repository(name, revision or None)


def _repository(name: str, revision: str | None) -> Repository:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    if hub.out_of_reach():
        raise UserError(
            f"{name} is no file or folder here, and the hub ({hub.endpoint()}) does not answer; check the network, or "
            "give a file or folder."
        )
    try:
        info = HfApi().model_info(name, revision=revision)
    except RepositoryNotFoundError as error:
        raise NotFoundError(f"There is no file, folder or repository {name}; check the name.") from error
    except (OSError, HFValidationError, HfHubHTTPError) as error:
        raise UserError(f"The repository {name} cannot be read from the hub ({first_line(error)}).") from error
    files = tuple(sorted(sibling.rfilename for sibling in info.siblings or ()))
    return Repository(name, info.sha or revision or "main", files)
