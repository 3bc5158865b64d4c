"""List the licences of every package that is installed, Python and JavaScript, as docs/licences.md.

    .venv/bin/python scripts/licences.py             writes the file
    .venv/bin/python scripts/licences.py check     exit code 1 where a package or a licence is not as the file says

What has to be there is what constraints.txt and frontend/package-lock.json name; their own metadata are believed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "licences.md"
LONGEST = 120
HEAD = """# Licences

Of every package that the program, its tests and its front end are built from, direct and transitive, as they say
themselves. Written by `scripts/licences.py`; versions are in `constraints.txt` and `frontend/package-lock.json`.
"""


def python_packages() -> dict[str, str]:
    """Name -> licence of what constraints.txt names."""
    names = [
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line
    ]
    return {name: _python_licence(name) for name in names}


def _python_licence(name: str) -> str:
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed here"
    said = [metadata.get("License-Expression") or metadata.get("License") or ""]
    known = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or [] if line.startswith("License")]
    for words in (*said, ", ".join(known)):
        line = (words.strip().splitlines() or [""])[0].strip()
        if line and len(line) <= LONGEST and line.lower() not in ("unknown", "dual license"):
            return line
    return ", ".join(known) or "not said"


def javascript_packages() -> dict[str, str]:
    """Name -> licence of what package-lock.json names."""
    lock = json.loads((ROOT / "frontend" / "package-lock.json").read_text("utf-8"))
    found: dict[str, str] = {}
    for place, package in lock["packages"].items():
        if place:
            found[re.sub(r"^.*node_modules/", "", place)] = package.get("license", "not said")
    return found


def page() -> str:
    """The whole file."""
    parts = [HEAD]
    for title, packages in (("Python", python_packages()), ("JavaScript", javascript_packages())):
        rows = "".join(f"| {name} | {packages[name]} |\n" for name in sorted(packages, key=str.lower))
        parts.append(f"\n## {title} ({len(packages)})\n\n| package | licence |\n|---|---|\n{rows}")
    return "".join(parts)


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", nargs="?", choices=["check"])
    wanted = page()
    if not parser.parse_args().check:
        TARGET.write_text(wanted, "utf-8")
        return 0
    if TARGET.read_text("utf-8") == wanted:
        print(f"{TARGET.name} names all packages and their licences.")
        return 0
    print(f"{TARGET.name} is not what is installed; write it anew: python scripts/licences.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
