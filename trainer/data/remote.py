"""Text files that fsspec reads: hf://, s3://, gs://, https:// and so on, without copies on disk."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, NamedTuple, cast

from mxd.trainer.errors import NotFoundError, UserError

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII)


class Status(NamedTuple):
    """The part of ``os.stat_result`` that readers use."""

    st_size: int


class RemoteFile:
    """A remote file, with the members of a path that readers use."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self.name, self.suffix = PurePosixPath(path).name, PurePosixPath(path).suffix

    def __str__(self) -> str:
        return str(self._filesystem.unstrip_protocol(self._path))

    def stat(self) -> Status:
        """Size of the file.

        Raises:
            UserError: the place cannot be read, or does not state the size.
        """
        with remote_errors(str(self)):
            size = self._filesystem.size(self._path)
        if size is None:  # of a web server that compresses what it sends
            raise UserError(f"The size of {self} is unknown. Download it and use the local file.")
        return Status(int(size))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open the file for reading from any position.

        Raises:
            UserError: the place cannot be read.
        """
        with remote_errors(str(self)):
            file = self._filesystem.open(self._path, mode)
        return cast(io.BufferedReader, file)


def is_url(text: str) -> bool:
    """Return whether a dataset is a URL."""
    return _URL.match(text) is not None


def remote_files(url: str) -> dict[tuple[str, ...], RemoteFile]:
    """Files of a URL by the components of their paths: one file, all in a folder, or those that match a pattern.

    Hidden files are left out, as of a local folder.

    Raises:
        NotFoundError: there is none.
        UserError: the place cannot be read, or its package is not installed.
    """
    from fsspec.core import url_to_fs

    with remote_errors(url):
        filesystem, path = url_to_fs(url)
        start = re.split(r"[*?\[]", path)[0]
        found = filesystem.find(path) if start == path else filesystem.glob(path)
    inside = len(start if start == path else start.rpartition("/")[0])
    files = {PurePosixPath(one).parts: RemoteFile(filesystem, one) for one in found if "/." not in one[inside:]}
    if not files:
        raise NotFoundError(f"There is no file at {url}. Check the address, or use a local file.")
    return files


@contextmanager
def remote_errors(url: str) -> Iterator[None]:
    """Turn errors of a remote place into a UserError about it."""
    try:
        yield
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".:; ") or type(error).__name__
        raise UserError(
            f"Cannot read {url}: {reason}. Check the address and your access, or use a local file."
        ) from error
