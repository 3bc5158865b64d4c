"""Timing several ways of doing the same, in turn, so that a machine that speeds up or slows down favours none."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch


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


def in_turn(ways: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Seconds of each way, ``rounds`` times, one round after the other."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + warm_up):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if number >= warm_up:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def median_ratio(slow: list[float], fast: list[float]) -> float:
    """Median over rounds of how many times longer ``slow`` took."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))
