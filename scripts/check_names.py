"""Check that no retired name comes back: modules, identifiers, flags and fields.

Run: python scripts/check_names.py; exit code 1 if anything is found. One word has one meaning (CONTRIBUTING.md).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXCLUDED = (
    "data/",
    "results/",
    "docs/results/",
    "CHANGELOG.md",
    "frontend/package-lock.json",
    "scripts/check_names.py",
)
SUFFIXES = {".py", ".ts", ".tsx", ".md", ".toml", ".ipynb", ".sh", ".sbatch"}


def _names(text: str) -> list[str]:
    return text.split()


MODULES = _names(
    """
    adoption ahead anatomy at_once beyond_machine catalogue cells counts demo_rest dose_curve drawing every_expert
    excerpts few_rows figures_of_evaluations figures_of_frontiers figures_of_probes figures_of_steering fit_plan fitting
    found freezing gate_config gather grouping guard heap held highlighting in_place in_python influence joined
    kept_figures learnt_thresholds leaving likeness looking matched merit norms objective observing ongoing opening
    outlook overload packing parting passes picks placed planning protect_config protecting registration
    removal repeating seen settled sharing sparse starts stock_ops store sums surroundings text to_wandb
    to_trackio to_tensorboard together twins verdicts whole written
    """
)
"""File names, without the suffix."""
IDENTIFIERS = _names(
    """
    OngoingRun RoomyCache WindowPlan ALONE HeldPerIndex FrozenPass Doorkeeper Observed Touches Arrangement Descent
    POLITENESS PATIENCE_SECONDS NOBODY_READS began_as kl_up kl_off steering_doses stock_ops kept_figures at_once
    while_wanted while_connected given_up lay_beside only_one is_held whole_folder write_whole written_down chosen_start
    trouble_with told_of in_words should_stop fitting_dtype last_text demo_rest rows_as_json read_by spanning
    MXD_WAITING MXD_WAITING_REQUESTS MXD_ROWS DoseConfig DoseRequest DoseEvent SteeredMlp LayerFunction
    """
)
PREFIXES = ("refuse_", "_see_that_")
"""Beginnings of names of functions: check_… raises a UserError."""
FLAGS = _names(
    """
    --text --other-text --batch --window --warmup --decay --text-seed --when-short --start --smallest-k --balance
    --apply --chosen-groups --most-added --after --added
    """
)
"""Flags of ``mxd``. Scripts and benchmarks may have flags of the same name."""
COMMANDS = ("influence", "open", "store", "bench", "approximate")

WORDS = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, IDENTIFIERS))}|(?:{'|'.join(PREFIXES)})\w+)(?![\w-])")
COMMAND_LINE = re.compile(rf"\bmxd (?:{'|'.join(COMMANDS)})\b|\bmxd [^`]*(?:{'|'.join(FLAGS)})(?![\w-])")


def tracked_files() -> list[Path]:
    """Tracked files to check, from the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in listed.split("\0") if name and not name.startswith(EXCLUDED)]
    return [path for path in paths if path.suffix in SUFFIXES and (ROOT / path).is_file()]


def findings(path: Path) -> Iterator[str]:
    """Retired names in one file."""
    if path.suffix == ".py" and path.stem in MODULES and path.parts[0] in ("trainer", "backend"):
        yield f"{path}: retired module name {path.stem}"
    source = (ROOT / path).read_text("utf-8")
    for number, line in enumerate(source.splitlines(), 1):
        for match in [*WORDS.finditer(line), *COMMAND_LINE.finditer(line)]:
            yield f"{path}:{number}: retired name in “{match[0][-60:]}”"


def main() -> int:
    """Print the retired names. Returns the exit code."""
    paths = tracked_files()
    retired = [line for path in paths for line in findings(path)]
    print("\n".join(retired) if retired else f"No retired name in {len(paths)} files")
    return 1 if retired else 0


if __name__ == "__main__":
    sys.exit(main())
