"""The documentation site builds without a warning, contains the generated pages and loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mxd
from mxd.backend.cli.registry import COMMANDS

ROOT = Path(__file__).parents[1]
FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]*\ssrc=\"(https?:[^\"]+)\"|<link[^>]*stylesheet[^>]*href=\"(https?:[^\"]+)\""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with --strict."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_in_the_navigation(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(str(page) for page in pages if not (site / page).is_file()) == []
    navigation = (site / "index.html").read_text("utf-8")
    assert sorted(str(page) for page in pages if f'href="{page}"' not in navigation and page.name != "index.html") == []


def test_the_references_are_generated(site: Path) -> None:
    commands = (site / "reference" / "command-line.html").read_text("utf-8")
    assert sorted(name for name in COMMANDS if f"mxd {name}" not in commands) == []
    assert "--learning-rate" in commands
    python = (site / "reference" / "python.html").read_text("utf-8")
    for name in set(mxd.__all__) - {"UserError", "__version__"}:
        assert re.search(rf'id="mxd\.api\.[\w.]+\.{name}"', python), name
    assert "Peak learning rate of AdamW" in python


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loaded = {str(page): FETCHED.findall(page.read_text("utf-8")) for page in site.rglob("*.html")}
    assert {page: addresses for page, addresses in loaded.items() if addresses} == {}
