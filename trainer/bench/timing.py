"""Timing several ways of doing the same, in turn, so that a machine that speeds up or slows down favours none."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from trainer.progress import Progress, silent


@dataclass(frozen=True)
class Machine:
    """What a figure was measured on."""

    processor: str
    threads: int
    device: str
    torch: str

    @classmethod
    def here(cls, device: str) -> Machine:
        """This machine."""
        name = torch.cuda.get_device_name() if device.startswith("cuda") else device
        return cls(platform.processor() or platform.machine(), torch.get_num_threads(), name, torch.__version__)


class Rounds:
    """Rounds in each of which every way is taken once, for one choice of sizes after the other; tells how far it is."""

    def __init__(
        self,
        choices: int,
        rounds: int,
        progress: Progress,
        warm_up: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``warm_up`` rounds more are taken first, and do not count; seconds are those of ``clock``."""
        self._rounds, self._warm_up = rounds, warm_up
        self._total, self._done = choices * (rounds + warm_up), 0
        self._progress, self._clock = progress, clock

    def take(self, ways: Mapping[str, Callable[[], object]], note: str = "") -> dict[str, list[float]]:
        """Seconds of each way in each round that counts."""
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(self._rounds + self._warm_up):
            for name, way in ways.items():
                started = self._clock()
                way()
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                if number >= self._warm_up:
                    seconds[name].append(self._clock() - started)
            self._done += 1
            self._progress(self._done, self._total, note)
        return seconds


def in_turn(
    ways: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """``Rounds`` of one choice, in silence."""
    return Rounds(1, rounds, silent, clock=clock).take(ways)


def median_ratio(slow: list[float], fast: list[float]) -> float:
    """Median over rounds of how many times longer ``slow`` took."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))
