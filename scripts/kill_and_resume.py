"""Kill training with SIGKILL at random moments, resume it each time, and compare it with an uninterrupted run.

    .venv/bin/python scripts/kill_and_resume.py --kills 20 --seed 0

Needs only the demo. Prints one JSON document; the exit code is 1 if any weight differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

TEST_DEMO = Path(__file__).resolve().parents[1] / "tests" / "demo"


def command(name: str, tokens: int) -> list[str]:
    """Command line that trains two runs in one pass over the text of the tests' demo."""
    fixed = [
        "--layer",
        "1",
        "--method",
        "mxd,transcoder",
        "--num-experts",
        "256",
        "--k",
        "8",
        "--on-short-text",
        "repeat",
    ]
    sizes = ["--tokens", str(tokens), "--batch-tokens", "512", "--buffer-tokens", "8192", "--checkpoint-every", "4096"]
    text = ["--dataset", str(TEST_DEMO / "text.jsonl.gz"), "--log-every", "4", "--resume", "--device", "cpu"]
    words = [sys.executable, "-m", "mxd.backend.cli.main", "train", str(TEST_DEMO / "language-model"), "--name", name]
    return [*words, *fixed, *sizes, *text]


def environment(data: Path) -> dict[str, str]:
    """One thread, so that both runs add in the same order, and a temporary data folder."""
    return {**os.environ, "MXD_DATA": str(data), "OMP_NUM_THREADS": "1"}


def fit_until_killed(words: list[str], data: Path, seconds: float) -> bool:
    """Start or resume, and kill after ``seconds``. Returns True if training was still running."""
    with subprocess.Popen(words, env=environment(data), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            _, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return True
    assert process.returncode == 0, said.decode()
    return False


def differing(data: Path, one: str, other: str) -> list[str]:
    """Names of the tensors that are not bit-identical."""
    first, second = (load_file(data / "runs" / name / "layer.safetensors") for name in (one, other))
    assert first.keys() == second.keys()
    return [name for name in first if not torch.equal(first[name], second[name])]


def main() -> int:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=200_000)
    chosen = parser.parse_args()
    random_numbers = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        started = time.monotonic()
        assert not fit_until_killed(command("whole", chosen.tokens), data, 3600)
        whole_seconds = time.monotonic() - started
        kills, names = 0, ["killed-1"]
        while kills < chosen.kills:
            # From before the first import has ended to almost the end.
            seconds = random_numbers.uniform(0.1, 0.9) * whole_seconds
            if fit_until_killed(command(names[-1], chosen.tokens), data, seconds):
                kills += 1
                print(f"killed {kills} of {chosen.kills}, after {seconds:.1f} s", file=sys.stderr, flush=True)
            else:  # finished before it was to be killed; the rest of the kills are for another
                names.append(f"killed-{len(names) + 1}")
        assert not fit_until_killed(command(names[-1], chosen.tokens), data, 3600)
        differences = [
            f"{name}-{method}: {tensor}"
            for name in names
            for method in ("mxd", "transcoder")
            for tensor in differing(data, f"{name}-{method}", f"whole-{method}")
        ]
    print(
        json.dumps(
            {"kills": kills, "fits": len(names), "seconds_each": round(whole_seconds, 1), "differing": differences}
        )
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
