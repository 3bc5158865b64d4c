"""Rules about the source tree that no linter checks: registries, local paths and large files."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# In pieces, so that this file does not match itself.
REGISTRY = re.compile(
    "|".join([r'"resol' + 'ved"', "index" + "-url", r"://[\w.]*regis" + "try", "python" + r"hosted\."])
)


def tracked() -> list[Path]:
    """Files under version control, relative to the root, except deleted ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def texts() -> Iterator[tuple[Path, str]]:
    """Tracked text files, except the demo's data."""
    for path in tracked():
        if path.is_relative_to("data/demo") or path.is_relative_to("tests/demo"):
            continue
        content = (ROOT / path).read_bytes()
        if b"\0" not in content[:8192]:
            yield path, content.decode("utf-8", errors="replace")


def test_no_file_names_a_package_registry() -> None:
    assert [str(path) for path, text in texts() if REGISTRY.search(text)] == []


def test_no_file_names_a_path_of_this_machine() -> None:
    places = {str(ROOT), str(ROOT.parent), str(Path.home())} - {tempfile.gettempdir(), "/"}
    path_of_this_machine = re.compile("|".join(rf"(?<![\w.]){re.escape(place)}/" for place in sorted(places)))
    assert [str(path) for path, text in texts() if path_of_this_machine.search(text)] == []
