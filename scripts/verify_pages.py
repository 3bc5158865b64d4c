"""Repeat the measurements of pages of results, and write the table of docs/trust.md.

    python -m scripts.verify_pages [PAGE…] [--minutes 10]

Without names, only the table is written, from results/verification/pages.json. With names, such as contrast.md, these
pages are run again first, each for about the given minutes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

from mxd.backend.cli.commands.verify import differences
from mxd.trainer.storage.run_sets import code_version

ROOT = Path(__file__).resolve().parents[1]
FOUND = ROOT / "results" / "verification" / "pages.json"
PAGE = ROOT / "docs" / "trust.md"
MARK = "<!-- table: results/verification/pages.json -->\n"
RECORDED = ("centred-mixing.md", "contrast.md", "jacobians.md")
"""Pages whose raw data has commands that ``mxd verify`` runs."""


class Output(NamedTuple):
    """A command whose output is compared with raw data."""

    command: str
    written: str
    """File that the command writes below OUT."""
    raw: str
    part: tuple[str, ...] = ()
    """Keys of the compared part of the written file."""
    raw_part: tuple[str, ...] = ()


OUTPUTS = {
    "circuits.md": Output(
        "python scripts/circuit_test.py demo-l2-k16 demo-l3-k16 --data tests/demo --output OUT/circuits.jsonl",
        "circuits.jsonl",
        "results/raw/demo-v2/circuits-test.jsonl.gz",
    ),
    "gpu-account.md": Output(
        "python -m benchmarks gpu --sections account --device cpu --out OUT",
        "gpu.json",
        "results/raw/gpu/account.json",
        ("sections", "account", "points"),
        ("after",),
    ),
}
ROUNDING = 1e-3
"""Largest absolute difference that is due to another order of sums, in logits, nats or milliseconds."""
TESTS = {"imports.md": "python -m pytest -q -n 0 -p no:cacheprovider tests/trainer/storage/formats"}
"""Page -> command that fails if its claim does not hold."""
LONGER = {
    "benchmark.md": "needs 40 minutes, and sae-probes with its data sets",
    "equal-parameters.md": "needs 90 minutes: 18 runs are trained",
    "performance.md": "needs 60 minutes on an idle machine; times do not repeat exactly",
    "planning.md": "needs an idle machine; times do not repeat exactly",
    "privacy.md": "needs more than 10 minutes",
    "recurrence.md": "needs 60 minutes: the other seeds are trained",
    "reliability.md": "needs more than 10 minutes",
    "sanity-controls.md": "needs two hours: 23 runs are trained",
    "sessions.md": "needs more than 10 minutes",
    "steerability.md": "needs more than 10 minutes",
}
LACKING = {
    "learning-curve.md": "a text that is not shipped",
    "small-llama.md": "a language model that is not shipped",
    "smollm2-grid.md": "a text that is not shipped",
    "steer-by-effect.md": "AxBench's concepts, which are not shipped",
    "steering.md": "an index of 256,000 tokens that is not shipped",
    "training-options.md": "a language model and a text that are not shipped",
}
"""Page -> what its command needs."""
STATED = {**LONGER, **{page: f"not verified: needs {lacking}" for page, lacking in LACKING.items()}}


def main() -> int:
    """Run some pages again and write the table. The exit code is 1 if one of them differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", choices=[*RECORDED, *OUTPUTS, *TESTS, []])
    parser.add_argument("--minutes", type=float, default=10)
    words = parser.parse_args()
    table = json.loads(FOUND.read_text("utf-8")) if FOUND.exists() else {"rows": []}
    rows = {row[0]: row for row in table["rows"]}
    for page in words.pages:
        started = time.monotonic()
        verdict = check(page, words.minutes)
        minutes = round((time.monotonic() - started) / 60, 1)
        rows[page] = [page, verdict, minutes, code_version()[:8]]
        print(f"{page}: {verdict}, {minutes} minutes", file=sys.stderr)
    rows |= {page: [page, verdict, None, None] for page, verdict in STATED.items()}
    for page in (*RECORDED, *OUTPUTS, *TESTS):
        rows.setdefault(page, [page, "not run yet", None, None])
    measured = date.today().isoformat() if words.pages else table.get("date")
    write([rows[page] for page in sorted({*RECORDED, *OUTPUTS, *TESTS, *STATED})], measured)
    return int(any(rows[page][1].startswith("differs") for page in words.pages))


def check(page: str, minutes: float) -> str:
    """Run the commands of a page again and say what came out."""
    if page in RECORDED:
        done = run(f"python -m mxd verify docs/results/{page} --minutes {minutes} --json")
        return summary([each["verdict"] for each in json.loads(done.stdout)])
    if page in TESTS:
        return "holds" if run(TESTS[page]).returncode == 0 else "differs: the command fails"
    output = OUTPUTS[page]
    with tempfile.TemporaryDirectory() as folder:
        run(output.command.replace("OUT", folder)).check_returncode()
        recorded = read(ROOT / output.raw, output.raw_part)
        return compared(recorded, read(Path(folder) / output.written, output.part))


def run(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with this interpreter in the checkout."""
    words = shlex.split(command)
    return subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)


def summary(verdicts: Sequence[str]) -> str:
    """One verdict for the commands of a page."""
    kinds = Counter(verdict.split()[0].rstrip(":") for verdict in verdicts)
    repeated, of = kinds["repeats"], len(verdicts)
    different = next((verdict for verdict in verdicts if verdict.startswith("differs")), None)
    if different is not None:
        return different.partition(":")[0]  # the place and its two values are for the screen
    return "repeats" if repeated == of else f"repeats: {repeated} of {of} commands; the others need longer"


def read(file: Path, keys: Sequence[str] = ()) -> Any:
    """Part of a JSON file, or the list of all lines of a file of JSON lines."""
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text("utf-8")
    if ".jsonl" in file.name:
        return [json.loads(line) for line in text.splitlines()]
    return reduce(getitem, keys, json.loads(text))


def compared(recorded: Any, now: Any) -> str:
    """Say whether numbers are equal up to rounding, or by how much they differ."""
    found = list(differences(recorded, now))
    if not found:
        return "repeats"
    amount = max(abs(one.recorded - one.now) if one.size < math.inf else math.inf for one in found)
    return (
        f"repeats within {amount:.0e}"
        if amount <= ROUNDING
        else f"differs by up to {amount:.2g} in {len(found):,} values"
    )


def write(rows: list[list[Any]], measured: str | None) -> None:
    """Write the rows as JSON and as the table of the page; ``measured`` is the date of the last measurement."""
    columns = ["page", "verdict", "minutes here", "commit"]
    FOUND.parent.mkdir(exist_ok=True)
    document = {
        "measured": "pages of results whose commands were run again",
        "model": None,
        "layer": None,
        "tokens": None,
        "seeds": None,
        "hardware": "2 vCPUs of an x86-64 server, no GPU, shared with other work",
        "date": measured,
        "command": "python -m scripts.verify_pages PAGE",
        "source": "written by scripts/verify_pages.py",
        "columns": columns,
        "rows": rows,
    }
    FOUND.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    lines = [columns, ["---"] * len(columns), *rows]
    cells = ["| " + " | ".join("–" if cell is None else str(cell) for cell in line) + " |\n" for line in lines]
    before, after = PAGE.read_text("utf-8").split(MARK)
    rest = after[after.index("\n\n") + 1 :] if "\n\n" in after else ""
    PAGE.write_text(before + MARK + "".join(cells) + rest, "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
