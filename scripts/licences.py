"""List the licences of all Python and JavaScript packages in docs/reference/licences.md.

    .venv/bin/python scripts/licences.py           write the file
    .venv/bin/python scripts/licences.py check     exit code 1 if a package or a licence differs from the file

The packages are those of constraints.txt and frontend/package-lock.json; licences are read from their metadata.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "reference" / "licences.md"
LONGEST = 120
HEAD = """# Licences

Of every package that the program, its tests and its front end are built from, direct and transitive, as they say
themselves. Written by `scripts/licences.py`; versions are in `constraints.txt` and `frontend/package-lock.json`.
"""


def python_packages() -> dict[str, str]:
    """Map the packages of constraints.txt to their licences."""
    names = [
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line
    ]
    return {name: _python_licence(name) for name in names}


def _python_licence(name: str) -> str:
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed here"
    known = ", ".join(
        line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or [] if line.startswith("License")
    )
    stated = (metadata.get("License-Expression") or metadata.get("License") or "").strip()
    # Some packages put the whole licence text into the field instead of its name.
    is_name = stated and "\n" not in stated and len(stated) <= LONGEST
    if is_name and stated.lower() not in ("unknown", "dual license"):
        return stated
    return known or (stated.splitlines() or ["not stated"])[0][:LONGEST]


def javascript_packages() -> dict[str, str]:
    """Map the packages of package-lock.json to their licences."""
    lock = json.loads((ROOT / "frontend" / "package-lock.json").read_text("utf-8"))
    licences: dict[str, str] = {}
    for place, package in lock["packages"].items():
        if place:
            licences[re.sub(r"^.*node_modules/", "", place)] = package.get("license", "not said")
    return licences


def page() -> str:
    """Contents of the file."""
    parts = [HEAD]
    for title, packages in (("Python", python_packages()), ("JavaScript", javascript_packages())):
        rows = "".join(f"| {name} | {packages[name]} |\n" for name in sorted(packages, key=str.lower))
        parts.append(f"\n## {title} ({len(packages)})\n\n| package | licence |\n|---|---|\n{rows}")
    return "".join(parts)


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", nargs="?", choices=["check"])
    expected = page()
    if not parser.parse_args().check:
        TARGET.write_text(expected, "utf-8")
        return 0
    if TARGET.read_text("utf-8") == expected:
        print(f"{TARGET.name} names all packages and their licences.")
        return 0
    print(f"{TARGET.name} is out of date. Run: python scripts/licences.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
