"""Bundles for download: packed once per state of the run and the database, and few at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock

from mxd.backend.errors import BusyError

MAX_BUNDLES = 2
"""Files on disk at the same time."""
MAX_DOWNLOADS = 16
"""Downloads at the same time."""
BUSY_SECONDS = 30.0


@dataclass(eq=False)
class Bundle:
    """A packed file that is being downloaded, or was last."""

    folder: Path
    path: Path
    lock: Lock = field(default_factory=Lock)
    is_packed: bool = False
    downloads: int = 0


class BundleDownloads:
    """The packed files of a server, in temporary folders."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._bundles: dict[Hashable, Bundle] = {}

    def open(self, name: str, state: Hashable, pack: Callable[[Path], None]) -> Bundle:
        """Return the bundle of a run, packed unless that was done in this state. Pair with ``close``.

        Raises:
            BusyError: too many downloads, or too many different files are being downloaded.
        """
        bundle = self._reserve(name, (name, state))
        try:
            with bundle.lock:
                if not bundle.is_packed:
                    pack(bundle.path)
                    bundle.is_packed = True
        except BaseException:
            self.close(bundle)
            raise
        return bundle

    def close(self, bundle: Bundle) -> None:
        """End a download. The newest file stays for the next one."""
        with self._lock:
            bundle.downloads -= 1
            if not bundle.is_packed:
                self._drop_unused()

    def clear(self) -> None:
        """Delete all files."""
        with self._lock:
            for bundle in self._bundles.values():
                shutil.rmtree(bundle.folder, ignore_errors=True)
            self._bundles.clear()

    def _reserve(self, name: str, key: Hashable) -> Bundle:
        with self._lock:
            if sum(bundle.downloads for bundle in self._bundles.values()) >= MAX_DOWNLOADS:
                raise BusyError(f"{MAX_DOWNLOADS} downloads are in progress. Try again in a moment.", BUSY_SECONDS)
            if key not in self._bundles:
                if len(self._bundles) >= MAX_BUNDLES:
                    self._drop_unused()
                if len(self._bundles) >= MAX_BUNDLES:
                    raise BusyError("Other runs are being downloaded. Try again in a moment.", BUSY_SECONDS)
                folder = Path(mkdtemp(prefix="mxd-bundle-"))
                self._bundles[key] = Bundle(folder, folder / f"{name}.mxd")
            bundle = self._bundles[key]
            bundle.downloads += 1
            return bundle

    def _drop_unused(self) -> None:
        for key, bundle in [entry for entry in self._bundles.items() if not entry[1].downloads]:
            shutil.rmtree(bundle.folder, ignore_errors=True)
            del self._bundles[key]
