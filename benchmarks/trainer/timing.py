"""Interleaved timing of alternatives, so that a machine whose speed changes favours none."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks


@dataclass(frozen=True)
class Machine:
    """Hardware and software of a measurement."""

    processor: str
    threads: int
    device: str
    torch: str

    @classmethod
    def here(cls, device: str) -> Machine:
        """Describe this machine."""
        name = torch.cuda.get_device_name() if device.startswith("cuda") else device
        return cls(platform.processor() or platform.machine(), torch.get_num_threads(), name, torch.__version__)


class Rounds:
    """Rounds in which every alternative runs once, for one choice of sizes after the other; reports progress."""

    def __init__(
        self,
        choices: int,
        rounds: int,
        callbacks: Callbacks,
        warm_up: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``warm_up`` more rounds run first and do not count; times are those of ``clock``."""
        self._rounds, self._warm_up = rounds, warm_up
        self._total, self._done = choices * (rounds + warm_up), 0
        self._callbacks, self._clock = callbacks, clock

    def take(self, ways: Mapping[str, Callable[[], object]], note: str = "") -> dict[str, list[float]]:
        """Seconds of each alternative in each counted round."""
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
            self._callbacks.check_cancelled()
            self._callbacks.on_progress(self._done, self._total, note)
        return seconds


def in_turn(
    ways: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """``Rounds`` of one choice, without progress."""
    return Rounds(1, rounds, NO_CALLBACKS, clock=clock).take(ways)


def median_ratio(slow: list[float], fast: list[float]) -> float:
    """Median over rounds of the time of ``slow`` relative to the other."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))
