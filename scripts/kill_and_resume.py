"""Kill training with SIGKILL at random moments, resume it each time, and compare it with an uninterrupted run.

    .venv/bin/python -m scripts.kill_and_resume --kills 20 --seed 0
    .venv/bin/python -m scripts.kill_and_resume --kills 20 --processes 4 --parallel experts
    .venv/bin/python -m scripts.kill_and_resume --kills 20 --processes 2,3,4

With several processes a random one is killed, and the others get SIGTERM, as from torchrun. They must end with one
message that names the first, or at once if they had not met. Several numbers of processes: every attempt draws one of
them, and weights may differ by rounding.

Needs only the demo. Prints one JSON document; the exit code is 1 if weights differ or a process did not end by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired

import torch

from mxd.backend.cli.main import main as mxd
from mxd.trainer.storage.run import Run
from tests.helpers.processes import PROCESSES, started_processes

IMPORTED_ONCE = [
    "tests.helpers.processes",
    "mxd.backend.cli.commands.train",
    "mxd.trainer.training.train",
    "mxd.trainer.data.activation_cache",
    "transformers.models.llama.modeling_llama",
]
TEST_DEMO = Path(__file__).resolve().parents[1] / "tests" / "demo"
METHODS = ("mxd", "transcoder")
LONGEST_SECONDS = 600.0
NOTICING_SECONDS = 0.1
"""Time in which torchrun notices that a process has ended."""
ENDING_SECONDS = 60.0
"""Time in which the other processes must notice that one was killed."""
ROUNDING = {"rtol": 1e-3, "atol": 1e-4}


def words_of(name: str, tokens: int, parallel: str) -> list[str]:
    """Command line that trains two runs in one pass over the text of the tests' demo."""
    fixed = "--layer 1 --num-experts 255 --k 8 --context-length 64 --batch-tokens 768 --buffer-tokens 6144"
    fixed += " --checkpoint-every 1536 --log-every 4 --on-short-text repeat --device cpu --resume"
    text = ["--dataset", str(TEST_DEMO / "text.jsonl.gz"), "--tokens", str(tokens), "--method", ",".join(METHODS)]
    words = ["train", str(TEST_DEMO / "language-model"), "--name", name, "--parallel", parallel]
    return [*words, *text, *fixed.split()]


@dataclass
class Attempts:
    """Starts of training, killed or not, and what went wrong in them."""

    wrong: list[str] = field(default_factory=list)
    slowest_notice: float = 0.0
    """Longest time in seconds from a kill to the end of the last of the other processes."""

    def to_the_end(self, words: list[str], processes: int) -> float:
        """Train without a kill. Returns the time in seconds."""
        began = time.monotonic()
        with started_processes(mxd, *words, processes=processes) as started:
            said = [process.communicate(LONGEST_SECONDS)[1] for process in started]
        codes = [process.returncode for process in started]
        assert codes == [0] * processes, "\n".join(said)
        return time.monotonic() - began

    def killed(self, words: list[str], processes: int, victim: int, seconds: float) -> bool:
        """Start or resume, and kill one process after ``seconds``. Returns True if it was still running."""
        with started_processes(mxd, *words, processes=processes) as started:
            try:
                started[victim].wait(seconds)
                was_running = False
            except TimeoutExpired:
                was_running = True
                started[victim].kill()
                time.sleep(NOTICING_SECONDS)
                for process in started:
                    process.terminate()
            killed_at, said = time.monotonic(), []
            for process in started:
                try:
                    said.append(process.communicate(ENDING_SECONDS if was_running else LONGEST_SECONDS)[1])
                except TimeoutExpired:
                    said.append("")
                    self.wrong.append(f"a process did not end after process {victim} of {processes} was killed")
            others = [process.returncode for number, process in enumerate(started) if number != victim]
        text = "\n".join(said)
        if was_running and any(others):
            self.slowest_notice = max(self.slowest_notice, time.monotonic() - killed_at)
            has_met = -signal.SIGTERM not in others
            told = text.count(f"because process {victim} ended without a message")
            if told > 1 or told < has_met or "Traceback" in text:
                self.wrong.append(f"process {victim} of {processes} killed after {seconds:.1f} s: {text}")
        return was_running


def differing(data: Path, one: str, other: str, is_rounded: bool) -> list[str]:
    """Names of the tensors that are not bit-identical, or differ by more than rounding."""
    first, second = (Run.load(name, data).layer.state_dict() for name in (one, other))
    assert first.keys() == second.keys()
    equal = (lambda a, b: torch.allclose(a, b, **ROUNDING)) if is_rounded else torch.equal
    return [name for name in first if not equal(first[name], second[name])]


def main() -> int:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=40_000)
    parser.add_argument("--processes", type=lambda given: [int(count) for count in given.split(",")], default=[1])
    parser.add_argument("--parallel", choices=("tokens", "experts", "runs"), default="tokens")
    chosen = parser.parse_args()
    chance, attempts = random.Random(chosen.seed), Attempts()
    PROCESSES.set_forkserver_preload(IMPORTED_ONCE)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        # One thread, so that both runs add in the same order.
        os.environ.update(MXD_DATA=str(data), OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
        first = chosen.processes[0]
        attempts.to_the_end(words_of("warm-up", 1536, chosen.parallel), first)  # until everything is imported
        whole_seconds = attempts.to_the_end(words_of("whole", chosen.tokens, chosen.parallel), first)
        kills, names = 0, ["killed-1"]
        while kills < chosen.kills:
            # From before the processes have met to almost the end.
            seconds, processes = chance.uniform(0, 0.9) * whole_seconds, chance.choice(chosen.processes)
            victim = chance.randrange(processes)
            words = words_of(names[-1], chosen.tokens, chosen.parallel)
            if attempts.killed(words, processes, victim, seconds):
                kills += 1
                told = f"killed {kills} of {chosen.kills}: process {victim} of {processes} after {seconds:.1f} s"
                print(told, file=sys.stderr, flush=True)
            else:  # finished before it was to be killed; the rest of the kills are for another
                names.append(f"killed-{len(names) + 1}")
        attempts.to_the_end(words_of(names[-1], chosen.tokens, chosen.parallel), chosen.processes[-1])
        differences = [
            f"{name}-{method}: {tensor}"
            for name in names
            for method in METHODS
            for tensor in differing(data, f"{name}-{method}", f"whole-{method}", len(chosen.processes) > 1)
        ]
    found = {
        "kills": kills,
        "runs": len(names),
        "seconds_each": round(whole_seconds, 1),
        "slowest_notice": round(attempts.slowest_notice, 1),
        "differing": differences,
        "wrong": attempts.wrong,
    }
    print(json.dumps(found))
    return 1 if differences or attempts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
