"""Speed of the language model on a machine that another program also uses, by how long idle threads spin."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.trainer.timing import Machine

FORWARD_TOKENS, DECODE_TOKENS = 128, 16
SPIN_VARIABLE = "GOMP_SPINCOUNT"
MEASURE = "from benchmarks.trainer.busy import measure; import sys; measure(sys.argv[1])"


@dataclass(frozen=True)
class BusyPoint:
    """Measurement with one number of spins."""

    spins: int
    """Iterations before an idle thread sleeps."""
    busy_cores: int
    """Processes that do nothing but use a core each."""
    forward_ms: float
    """Median time of a forward pass over 128 tokens."""
    token_ms: float
    """Median time per token of greedy decoding."""


@dataclass(frozen=True)
class BusyBench:
    """Result of ``python -m benchmarks busy``."""

    points: list[BusyPoint]
    language_model: str
    machine: Machine


def bench_busy(source: str, spins: Sequence[int], busy_cores: Sequence[int], rounds: int) -> list[BusyPoint]:
    """Measure each number of spins in processes of its own, since it is read when PyTorch is imported; in turn."""
    times: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for cores in busy_cores:
            with _busy(cores):
                for count in spins:
                    times.setdefault((count, cores), []).append(_in_process(source, count))
    return [
        BusyPoint(count, cores, *(statistics.median(values) for values in zip(*measured, strict=True)))
        for (count, cores), measured in times.items()
    ]


def _in_process(source: str, spins: int) -> tuple[float, float]:
    environment = {**os.environ, SPIN_VARIABLE: str(spins)}
    words = [sys.executable, "-c", MEASURE, source]
    answer = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout
    forward_ms, token_ms = json.loads(answer)
    return forward_ms, token_ms


@contextmanager
def _busy(cores: int) -> Iterator[None]:
    # In a session of its own, the other program gets as much of the machine as this one: Linux divides it by session.
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(cores)
    ]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(source: str) -> None:
    """Print milliseconds of a forward pass and of a decoded token, as JSON. Runs in its own process."""
    import torch

    from mxd.trainer.language_model.model import LanguageModel

    language_model = LanguageModel.load(source, "cpu")
    ids_1T = torch.arange(FORWARD_TOKENS)[None] % language_model.config.vocab_size

    def decode() -> None:
        cache, ids = None, ids_1T[:, :1]
        for _ in range(DECODE_TOKENS):
            logits, cache = language_model.next_logits(ids, cache)
            ids = logits.argmax(-1, keepdim=True)

    with torch.no_grad():
        forward_ms = _median_ms(lambda: language_model.logits(ids_1T))
        print(json.dumps([forward_ms, _median_ms(decode) / DECODE_TOKENS]))


def _median_ms(work: Callable[[], object], rounds: int = 3) -> float:
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds[1:])
