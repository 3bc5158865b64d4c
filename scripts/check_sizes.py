"""Check that no file above 1 MB was added or changed since those in ``scripts/large_files.txt``: history keeps each.

Run: python scripts/check_sizes.py; exit code 1 if one was. It reads the index of git, so add files first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1_000_000
"""Bytes."""


def large_files(root: Path) -> list[str]:
    """``HASH PATH`` of each file in the index that exceeds the limit."""
    staged = subprocess.run(["git", "ls-files", "-s"], cwd=root, capture_output=True, text=True, check=True).stdout
    entries = [f"{line.split()[1]} {line.partition(chr(9))[2]}" for line in staged.splitlines()]
    sizes = subprocess.run(
        ["git", "cat-file", "--batch-check=%(objectsize)"],
        cwd=root,
        input="\n".join(entry.split()[0] for entry in entries),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [entry for entry, size in zip(entries, sizes, strict=True) if size.isdigit() and int(size) > LIMIT]


def main() -> int:
    """Print the files that are too large, and return the exit code."""
    known = (ROOT / "scripts" / "large_files.txt").read_text("utf-8").splitlines()
    added = [entry for entry in large_files(ROOT) if entry not in known]
    for entry in added:
        print(f"{entry.partition(' ')[2]} exceeds 1 MB. Commit data as a release asset or a package, not here.")
    return int(bool(added))


if __name__ == "__main__":
    sys.exit(main())
