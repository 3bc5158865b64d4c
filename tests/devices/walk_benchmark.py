"""The rehearsal of ``python -m benchmarks gpu`` on the pretend device."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.commands.bench_gpu import SECTIONS, all_sections
from benchmarks.gpu.sections import Setting, here, run_sections


def test_every_section_runs(tmp_path: Path) -> None:
    # Without the smoke test, whose commands have walks of their own, and the check of the kernels in float64.
    names = [name for name in SECTIONS if name not in ("smoke", "kernels")]
    sections = [all_sections()[name] for name in names]
    outcomes = run_sections(sections, Setting("sim", True, tmp_path), time.time() + 600, {}, here, lambda _line: None)
    assert {name: outcome.traceback for name, outcome in outcomes.items()} == dict.fromkeys(names)
