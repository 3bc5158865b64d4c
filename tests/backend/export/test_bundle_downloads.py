"""Bundles are packed once per state, few are on disk, and none stays when the server ends."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mxd.backend.errors import BusyError
from mxd.backend.export.bundle_downloads import MAX_BUNDLES, MAX_DOWNLOADS, Bundle, BundleDownloads


@pytest.fixture
def downloads() -> Iterator[BundleDownloads]:
    """Downloads whose files are deleted at the end."""
    it = BundleDownloads()
    yield it
    it.clear()


class Packing:
    """Writes a small file and counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, path: Path) -> None:
        """Pack."""
        self.count += 1
        path.write_text(str(self.count))


def test_simultaneous_downloads_share_one_bundle(downloads: BundleDownloads) -> None:
    packing = Packing()
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: downloads.open("run", 1, packing), range(8)))
    assert packing.count == 1
    assert {bundle.path.read_text() for bundle in opened} == {"1"}
    for bundle in opened:
        downloads.close(bundle)
    again = downloads.open("run", 1, packing)
    assert (packing.count, again.path.name) == (1, "run.mxd")


def test_unread_downloads_are_limited_and_outdated_files_deleted(downloads: BundleDownloads) -> None:
    packing = Packing()
    opened: list[Bundle] = [downloads.open("run", state, packing) for state in range(MAX_BUNDLES)]
    with pytest.raises(BusyError):
        downloads.open("run", "another", packing)
    downloads.close(opened[0])
    downloads.open("run", "another", packing)
    assert not opened[0].path.exists()
    for _ in range(MAX_DOWNLOADS - MAX_BUNDLES):
        downloads.open("run", "another", packing)
    with pytest.raises(BusyError):
        downloads.open("run", "another", packing)


def test_a_failed_bundle_leaves_no_file(downloads: BundleDownloads) -> None:
    made: list[Path] = []

    def failing(path: Path) -> None:
        made.append(path)
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk is full"):
        downloads.open("run", 1, failing)
    assert not made[0].parent.exists()
    assert downloads.open("run", 1, Packing()).path.read_text() == "1"
