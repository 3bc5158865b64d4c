"""Rules about the source tree that no linter checks: sizes, registries and local paths."""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAX_FILE_LINES = 620
MAX_FUNCTION_LINES = 60
SOURCE_FOLDERS = ("mxd", "trainer", "backend", "benchmarks", "frontend/src", "tests", "scripts", "results")
SOURCE_SUFFIXES = {".py", ".ts", ".tsx", ".css", ".sh"}
GENERATED = {"frontend/src/api/schema.d.ts"}

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


def sources() -> list[Path]:
    """Source files that people write and read."""
    return [
        path
        for path in tracked()
        if path.suffix in SOURCE_SUFFIXES
        and any(path.is_relative_to(folder) for folder in SOURCE_FOLDERS)
        and str(path) not in GENERATED
    ]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and number of lines of each function in a Python file."""
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def texts() -> Iterator[tuple[Path, str]]:
    """Tracked text files, except the demo's data."""
    for path in tracked():
        if path.is_relative_to("data/demo") or path.is_relative_to("tests/demo"):
            continue
        content = (ROOT / path).read_bytes()
        if b"\0" not in content[:8192]:
            yield path, content.decode("utf-8", errors="replace")


def test_files_are_short() -> None:
    lengths = {str(path): len((ROOT / path).read_text("utf-8").splitlines()) for path in sources()}
    assert lengths
    assert {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    python = [path for path in sources() if path.suffix == ".py"]
    lengths = {f"{path}:{name}": lines for path in python for name, lines in functions(path)}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_no_file_names_a_package_registry() -> None:
    assert [str(path) for path, text in texts() if REGISTRY.search(text)] == []


def test_no_file_names_a_path_of_this_machine() -> None:
    places = {str(ROOT), str(ROOT.parent), str(Path.home())} - {tempfile.gettempdir(), "/"}
    path_of_this_machine = re.compile("|".join(rf"(?<![\w.]){re.escape(place)}/" for place in sorted(places)))
    assert [str(path) for path, text in texts() if path_of_this_machine.search(text)] == []
