"""Run the attacks on files, requests and servers, and print a table: attack, cases, failures, slowest answer, limit.

python scripts/attacks.py                        all of them
python scripts/attacks.py bundles                those whose name contains a word
python scripts/attacks.py --json attacks.json    also write the table as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LANGUAGE_MODEL, API = "tests/trainer/language_model", "tests/backend/api"
BUNDLES, STORAGE = "tests/backend/export/bundles", "tests/trainer/storage"
ATTACKS: dict[str, tuple[int, tuple[str, ...]]] = {
    "language models: missing, renamed, misshapen, non-finite weights": (
        60,
        ("tests/backend/cli/commands/test_doctor.py", f"{LANGUAGE_MODEL}/test_loading.py"),
    ),
    "configs: sizes beyond the weights, kernels": (60, (f"{LANGUAGE_MODEL}/test_untrusted.py", "-k", "config")),
    "tokenizers: nested, doubling, endless": (60, (f"{LANGUAGE_MODEL}/test_untrusted.py", "-k", "tokenizer")),
    "chat templates: endless, too large, failing": (60, (f"{LANGUAGE_MODEL}/test_chat_template.py",)),
    "bundles: mutated values of every column": (30, (f"{BUNDLES}/test_mutations.py",)),
    "bundles: entries, sizes, checksums, memory, versions": (60, (f"{BUNDLES}/test_bundles.py",)),
    "runs: damaged and foreign files, links, pickles": (30, (f"{STORAGE}/test_run.py",)),
    "imports: pickles, YAML, norms, files of trainers": (30, (f"{STORAGE}/formats/test_formats.py",)),
    "texts: damaged, nested, compressed to expand": (60, ("tests/trainer/data/test_readers.py",)),
    "requests: every endpoint, arbitrary values": (20, ("tests/backend/fuzz/test_http.py",)),
    "inputs: config files, damaged bytes, hosts, cursors, words": (30, ("tests/backend/fuzz/test_inputs.py",)),
    "requests: tokens, roles, hosts, forged addresses": (60, (f"{API}/test_authentication.py", f"{API}/test_app.py")),
    "connections: slow, endless, unread, too many": (60, (f"{API}/test_connections.py",)),
    "inference: seeds, full queue, damaged weights, memory, endless templates": (
        60,
        ("tests/backend/inference/test_service.py",),
    ),
    "databases: waiting writers, frozen PostgreSQL": (
        60,
        ("tests/backend/database/test_maintenance.py", "-k", "waiting or frozen"),
    ),
    "databases: read-only folders, damaged files": (
        60,
        ("tests/backend/database/test_maintenance.py", "-k", "not waiting and not frozen"),
    ),
    "runs in the working folder, names that leave the data folder": (
        30,
        ("tests/backend/inference/test_run_loader.py",),
    ),
    "labels: markup in figures, formulas and escapes in exports": (
        60,
        ("tests/backend/queries/test_evaluations.py", "tests/backend/export/test_export.py"),
    ),
    "containers: privileges, limits, volumes": (
        60,
        ("tests/test_structure.py", "-k", "containers or images or app_starts"),
    ),
}
"""Attack -> the most seconds that one case may take, and words of pytest."""
RECORDER = "scripts.attacks"
"""This file as a plugin of pytest."""
COLUMNS = ("attack", "cases", "failures", "slowest answer, s", "limit, s")
Row = tuple[str, int, int, float, float]


def main() -> int:
    """Run the selected attacks. Returns 1 if any fails or takes longer than its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="", help="run the attacks whose name contains it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table to this file")
    chosen = parser.parse_args()
    os.environ.setdefault("FUZZ_EXAMPLES", "100")
    rows = []
    for row in _rows(chosen.word):
        rows.append(row)
        sys.stderr.write(f"{row[0]}: {row[2]} failures\n")
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {cases:,} | {bad} | {slowest:.1f} | {limit:g} |" for name, cases, bad, slowest, limit in rows
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    if chosen.json:
        chosen.json.write_text(json.dumps({"columns": COLUMNS, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    return int(not rows or any(bad for _, _, bad, _, _ in rows))


def _rows(word: str) -> Iterator[Row]:
    for name, (limit, paths) in ATTACKS.items():
        if word in name:
            result = _recorded("-q", "-n0", "--tb=short", "-p", "no:cacheprovider", "-p", RECORDER, *paths)
            slowest = result["slowest_seconds"]
            yield name, result["cases"], result["failures"] + (not result["cases"]) + (slowest > limit), slowest, limit


def _recorded(*words: str) -> Any:
    """Run pytest in a process of its own; return what it wrote to the file that ATTACKS_RECORD names.

    Raises:
        SystemExit: it wrote nothing. Its error is above.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "record.json"
        variables = {**os.environ, "ATTACKS_RECORD": str(file)}
        command = [sys.executable, "-m", "pytest", *words]
        subprocess.run(command, cwd=ROOT, stdout=sys.stderr, env=variables, check=False)
        if not file.exists():
            raise SystemExit("pytest ended without a result; its error is above.")
        return json.loads(file.read_text())


# ---------------------------------------------------------------- in pytest's process

TOTALS = {"cases": 0, "failures": 0, "slowest_seconds": 0.0}


def _cases() -> Any:
    from tests.helpers.fuzzing import CASES

    return CASES


def pytest_runtest_setup() -> None:
    """Count the cases of each test alone."""
    _cases().reset()


def pytest_runtest_logreport(report: Any) -> None:
    """Add a test, or an error in its fixtures. A test that counts no cases is one case."""
    TOTALS["failures"] += report.failed
    if report.when == "call":
        cases = _cases()
        TOTALS["cases"] += cases.count or 1
        TOTALS["slowest_seconds"] = max(TOTALS["slowest_seconds"], cases.slowest if cases.count else report.duration)


def pytest_collectreport(report: Any) -> None:
    """A file that cannot be read is a failure."""
    TOTALS["failures"] += report.failed


def pytest_sessionfinish() -> None:
    """Write the totals."""
    Path(os.environ["ATTACKS_RECORD"]).write_text(json.dumps(TOTALS))


if __name__ == "__main__":
    sys.exit(main())
