"""Run the attacks on files that people hand over, and print a table: what is promised, how many attacks, the result.

python scripts/attacks.py           all of them
python scripts/attacks.py bundles   those whose name contains a word
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter

import pytest

ATTACKS = {
    "bundles: entries, sizes, checksums": ("tests/backend/export/bundles/test_bundles.py",),
    "bundles: mutated values of every column": ("tests/backend/export/bundles/test_mutations.py",),
    "runs: damaged and foreign files, links, pickles": ("tests/trainer/storage/test_run_fuzz.py",),
    "imports: pickles, YAML, tensors that claim more": ("tests/trainer/storage/importers/test_rejected_files.py",),
    "tokenizers: nested, doubling, endless": ("tests/trainer/language_model/untrusted/test_tokenizer_check.py",),
    "chat templates: endless, too large, failing": ("tests/trainer/language_model/test_chat_template.py",),
    "configs: sizes beyond the weights, kernels": ("tests/trainer/language_model/untrusted/test_config_check.py",),
    "containers: privileges, limits, volumes": ("tests/test_containers.py",),
}
"""Promise -> files of tests."""


class Outcomes:
    """Counts the outcomes of tests, as a plugin of pytest."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once, or an error in its fixtures."""
        if report.when == "call" or report.failed:
            self.counts[report.outcome] += 1


def main(word: str) -> int:
    """Run the attacks whose name contains a word. Returns 1 if any fails."""
    os.environ.setdefault("FUZZ_EXAMPLES", "100")
    failed = 0
    write = sys.stdout.write
    rows = [f"| {'attack':48} | tests | failed | seconds |", f"|{'-' * 50}|------:|-------:|--------:|"]
    for name, paths in ATTACKS.items():
        if word in name:
            outcomes, started = Outcomes(), time.monotonic()
            pytest.main(["-q", "-p", "no:cacheprovider", "--tb=short", *paths], plugins=[outcomes])
            counts = outcomes.counts
            bad = counts["failed"] + (not counts)
            failed += bad
            rows.append(f"| {name:48} | {counts.total():5} | {bad:6} | {time.monotonic() - started:7.0f} |")
    write("\n" + "\n".join(rows) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
