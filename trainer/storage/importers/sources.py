"""Sources of imported files: a file, a folder, or a Hugging Face Hub repo whose files are downloaded on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.utils.files import endpoint, first_line, is_unreachable, looks_like_path

MAX_FILES = 100_000
"""Maximum number of files in a folder of layers."""


class Source(Protocol):
    """A collection of files with relative names."""

    @property
    def name(self) -> str:
        """Name of the source."""
        ...

    @property
    def revision(self) -> str | None:
        """Commit of a repo."""
        ...

    def names(self) -> Sequence[str]:
        """Return the relative names of all files, with ``/`` between folders."""
        ...

    def fetch(self, name: str) -> Path:
        """Return a local path of a file."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder, or one file in it."""

    root: Path
    only: str | None = None
    """Name of the only file, if a file was chosen."""

    @property
    def name(self) -> str:
        """Absolute path."""
        return str((self.root / self.only if self.only else self.root).resolve())

    @property
    def revision(self) -> str | None:
        """None: folders have no revision."""
        return None

    def names(self) -> list[str]:
        """Return the chosen file, or all files below the folder."""
        if self.only is not None:
            return [self.only]
        names = []
        for path in self.root.rglob("*"):
            if path.is_file():
                names.append(path.relative_to(self.root).as_posix())
            if len(names) > MAX_FILES:
                raise UserError(
                    f"Too many files in {self.root}: more than {MAX_FILES:,}. Choose the folder of a layer."
                )
        return sorted(names)

    def fetch(self, name: str) -> Path:
        """Return the path of a file."""
        return self.root / name


@dataclass(frozen=True)
class Repository:
    """A Hugging Face Hub repo at one commit."""

    name: str
    revision: str
    files: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        """Return the names of all files."""
        return self.files

    def fetch(self, name: str) -> Path:
        """Download a file, unless it is cached, and return its path."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError

        try:
            return Path(hf_hub_download(self.name, name, revision=self.revision))
        except (OSError, ValueError, HfHubHTTPError) as error:
            raise UserError(
                f"Cannot download {name} of {self.name} from the Hugging Face Hub: {first_line(error)}."
            ) from error


def open_source(source: str) -> Source:
    """Open a file, a folder, or a Hugging Face Hub repo OWNER/NAME, optionally with @REVISION.

    Raises:
        NotFoundError: there is no such file, folder or repo.
        UserError: the Hub cannot be reached.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return Folder(path)
    if path.is_file():
        return Folder(path.parent, path.name)
    name, _, revision = source.partition("@")
    if looks_like_path(source) or name.count("/") != 1:
        raise NotFoundError(f"No such file or folder: {source}. Pass one, or a Hugging Face Hub repo as OWNER/NAME.")
    return _repository(name, revision or None)


def _repository(name: str, revision: str | None) -> Repository:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    if is_unreachable():
        raise UserError(
            f"No such file or folder: {name}. The Hugging Face Hub ({endpoint()}) does not respond; check the network."
        )
    try:
        info = HfApi().model_info(name, revision=revision)
    except RepositoryNotFoundError as error:
        raise NotFoundError(f"No such file, folder or Hugging Face Hub repo: {name}.") from error
    except (OSError, HFValidationError, HfHubHTTPError) as error:
        raise UserError(f"Cannot read {name} from the Hugging Face Hub: {first_line(error)}.") from error
    files = tuple(sorted(sibling.rfilename for sibling in info.siblings or ()))
    return Repository(name, info.sha or revision or "main", files)
