"""The pages of results agree with their JSON and link what exists."""

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.commands.bench import BENCHMARKS
from mxd.backend.cli.commands.verify import RAW, results_in
from mxd.backend.cli.parser import parse
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import weights_digest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "results").glob("*.md"))
TRUST, FINDINGS = ROOT / "docs" / "trust.md", ROOT / "docs" / "findings.md"
"""They also have a table with JSON."""
CLAIMS = [page for page in PAGES if page.name != "index.md"]
TABLE = re.compile(r"^<!-- table: (?P<json>\S+) -->\n(?P<lines>(?:\|.*\n)+)", re.MULTILINE)
NUMBER = re.compile(r"[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?P<decimals>\.\d+)?(?:e(?P<exponent>-?\d+))?")
PROGRAM = re.compile(r"^ {4}python (?:-m (?P<module>[\w.]+)|(?P<path>[\w/-]+\.py))(?P<words>.*)$", re.MULTILINE)
"""Line of a code block that runs a module or a script of the checkout."""


EARLIER = re.compile(r"^# .+\n\n> \*\*Earlier run\.\*\* .+", re.MULTILINE)
"""First line of a page, below its title, which names the runs that are not the shipped ones."""


@cache
def shipped() -> dict[str, str]:
    """Run of a demo -> digest of its weights."""
    folders = (ROOT / "data" / "demo", ROOT / "tests" / "demo")
    names = [(path.parent.name, folder) for folder in folders for path in (folder / "runs").glob("*/run.json")]
    return {name: weights_digest([Run.load(name, folder)]) for name, folder in names}


def runs_named(text: str) -> set[str]:
    return {run for run in shipped() if re.search(rf"(?<![\w-]){run}(?![\w-])", text)}


def measured_runs(page: Path, text: str) -> list[tuple[str, str]]:
    """Runs with the digests of the weights that a page's numbers belong to."""
    noted = json.loads((ROOT / "results" / "raw" / "provenance.json").read_text("utf-8")).get(page.name)
    files = [ROOT / name for name in RAW.findall(text)]
    results = [result for file in files for result in results_in(json.loads(file.read_text("utf-8")))]
    origins = [*(result["provenance"] for result in results), *([noted] if noted else [])]
    return [(run, digest) for origin in origins for run, digest in origin["runs"].items()]


def tables() -> Iterator[tuple[Path, Path, list[list[str]]]]:
    """Every marked table: its page, its JSON, and its cells with the header first and the rule left out."""
    for page in (*PAGES, *(ROOT / "docs" / "results" / "archive").glob("*.md"), TRUST, FINDINGS):
        for match in TABLE.finditer(page.read_text("utf-8")):
            lines = match["lines"].splitlines()
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            yield page, ROOT / match["json"], [cells[0], *cells[2:]]


def flatten(cell: Any) -> list[float]:
    if isinstance(cell, dict):
        return flatten(list(cell.values()))
    if isinstance(cell, list):
        return [number for item in cell for number in flatten(item)]
    return [float(cell)]


def shows(text: str, cell: Any) -> bool:
    """Compare the text of a table cell with a JSON cell, each number rounded as it is displayed."""
    if isinstance(cell, str):
        return re.sub(r"[*`]", "", text) == cell
    numbers = list(NUMBER.finditer(text))
    if cell is None:
        return text == "–"
    expected = flatten(cell)
    return len(numbers) == len(expected) and all(map(rounds_to, expected, numbers))


def rounds_to(value: float, shown: re.Match[str]) -> bool:
    """Compare a value with a displayed number at the displayed digits."""
    decimals = len(shown["decimals"] or ".") - 1
    unit = 10.0 ** (int(shown["exponent"] or 0) - decimals)
    return abs(float(shown[0].replace(",", "").replace("−", "-")) - value) <= 0.5 * unit * (1 + 1e-6)


@pytest.mark.parametrize(("page", "path", "cells"), list(tables()), ids=lambda value: getattr(value, "stem", ""))
def test_table_agrees_with_its_json(page: Path, path: Path, cells: list[list[str]]) -> None:
    table = json.loads(path.read_text("utf-8"))
    assert cells[0] == table["columns"]
    assert len(cells) == len(table["rows"]) + 1
    for texts, row in zip(cells[1:], table["rows"], strict=True):
        assert len(texts) == len(row)
        assert [(text, cell) for text, cell in zip(texts, row, strict=True) if not shows(text, cell)] == [], page.name


def test_every_json_table_is_shown_and_names_its_source() -> None:
    shown = {path for _, path, _ in tables()}
    stored = {path for path in (ROOT / "results").rglob("*.json") if "raw" not in path.parts}
    assert stored == shown
    for path in stored:
        assert {"measured", "tokens", "seeds", "hardware", "date", "source"} <= set(json.loads(path.read_text("utf-8")))


@pytest.mark.parametrize("page", CLAIMS, ids=lambda page: page.stem)
def test_numbers_of_a_shipped_run_belong_to_its_weights(page: Path) -> None:
    text = page.read_text("utf-8")
    earlier = runs_named("".join(match[0] for match in EARLIER.finditer(text)))
    measured = [(run, digest) for run, digest in measured_runs(page, text) if run in shipped() and run not in earlier]
    assert [run for run, digest in measured if digest != shipped()[run]] == []
    assert runs_named(text) - earlier - {run for run, _ in measured} == set(), "Say 'Earlier run' or give the digest."


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_programs_exist_and_benchmarks_accept_their_flags(page: Path) -> None:
    for match in PROGRAM.finditer(page.read_text("utf-8")):
        path = ROOT / (match["path"] or match["module"].replace(".", "/"))
        assert path.exists() or path.with_suffix(".py").exists() or match["module"] == "pytest", match[0]
        if match["module"] == "benchmarks":
            name, *options = shlex.split(match["words"])
            parse(BENCHMARKS[name], options, name)
