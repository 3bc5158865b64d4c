"""Write the generated reference pages: command line, HTTP API, server settings.

Run: python scripts/reference_pages.py          write them
     python scripts/reference_pages.py --check  exit code 1 if a page is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from command_line_page import page as command_line_page

from mxd.backend.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
OPENAPI = ROOT / "frontend" / "openapi.json"
HTTP_HEAD = """# HTTP API

Generated from the server's OpenAPI schema. A running server has the schema at `/openapi.json` and an interactive page
at `/docs`. [Security](../security.md) explains tokens and limits. `/metrics` serves Prometheus metrics, `/healthz`
health checks.

| method | path | description |
|---|---|---|
"""
SETTINGS_HEAD = """# Server settings

Every setting of `mxd serve` is a flag and an environment variable. Flags take precedence.

| variable | default | description |
|---|---|---|
"""


def http_page() -> str:
    """One row per operation of ``frontend/openapi.json``."""
    paths = json.loads(OPENAPI.read_text("utf-8"))["paths"]
    rows = [
        f"| {method.upper()} | `{path}` | {_cell(operation.get('description') or operation['summary'])} |"
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]
    return HTTP_HEAD + "\n".join(rows) + "\n"


def settings_page() -> str:
    """One row per field of ``Settings``."""
    rows = [
        f"| `MXD_{name.upper()}` | {_default(field.default)} | {_cell(field.description or '')} |"
        for name, field in Settings.model_fields.items()
    ]
    return SETTINGS_HEAD + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    """First paragraph of ``text`` as a table cell."""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def _default(value: object) -> str:
    if value is None or value == () or repr(value) == "PydanticUndefined":
        return ""
    return f"`{value:,}`" if isinstance(value, int) and value >= 10_000 else f"`{value}`"


PAGES = {"command-line.md": command_line_page, "http.md": http_page, "settings.md": settings_page}


def main(words: list[str]) -> int:
    """Write or check the pages. Returns the exit code."""
    contents = {FOLDER / name: page() for name, page in PAGES.items()}
    if "--check" in words:
        stale = [path for path, text in contents.items() if not path.is_file() or path.read_text("utf-8") != text]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date. Run: make generate")
        return 1 if stale else 0
    for path, text in contents.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
