"""Sections of a GPU run: each is a process with a time limit, whose results are written as they come."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mxd.trainer.utils.files import atomic_write

REPORT_FILE = "gpu.json"
STOP_SECONDS = 5.0
"""Time that a section has for ending by itself after its limit, before it is killed."""

Point = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """Input of every section."""

    device: str
    tiny: bool
    """True for a rehearsal at sizes that a CPU computes in seconds."""
    out: Path
    deadline: float = field(default=float("inf"))
    """Time at which the section ends, on the clock of ``time.time``."""

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.time()


@dataclass(frozen=True)
class Section:
    """A part of the run."""

    name: str
    points: Callable[[Setting], Iterator[Point]]
    """Yields one measurement after the other."""
    share: float
    """Share of the time that is left when the section starts. The last section of a run has all of it."""


@dataclass
class Outcome:
    """Result of a section."""

    points: list[Point] = field(default_factory=list)
    error: str | None = None
    traceback: str | None = None
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """True if the section came to its end."""
        return self.error is None


Runner = Callable[[Section, Setting, Callable[[Point], None]], Outcome]


def run_sections(
    sections: Sequence[Section],
    setting: Setting,
    end: float,
    about: Mapping[str, Any],
    runner: Runner,
    say: Callable[[str], None],
) -> dict[str, Outcome]:
    """Run the sections in order and keep ``gpu.json`` up to date.

    Args:
        sections: the sections, most valuable first.
        setting: the setting; each section gets its own deadline.
        end: time at which everything ends, on the clock of ``time.time``.
        about: facts about the run for ``gpu.json``.
        runner: ``in_a_fork``, or ``here``.
        say: prints a line.
    """
    setting.out.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, Outcome] = {}
    for section in sections:
        started = time.time()
        share = 1 if section is sections[-1] else section.share
        limited = Setting(**{**setting.__dict__, "deadline": started + share * (end - started)})
        outcome = outcomes[section.name] = Outcome()

        def keep(point: Point, outcome: Outcome = outcome, name: str = section.name) -> None:
            outcome.points.append(point)
            say(f"{name}: {json.dumps(point)}"[:400])
            _write(setting.out, about, outcomes)

        ended = runner(section, limited, keep)
        outcome.error, outcome.traceback, outcome.seconds = ended.error, ended.traceback, time.time() - started
        say(f"{section.name}: {outcome.error or 'complete'} after {outcome.seconds:.1f} s")
        _write(setting.out, about, outcomes)
    return outcomes


def _write(out: Path, about: Mapping[str, Any], outcomes: Mapping[str, Outcome]) -> None:
    sections = {name: outcome.__dict__ for name, outcome in outcomes.items()}
    atomic_write(out / REPORT_FILE, json.dumps({**about, "sections": sections}, indent=1) + "\n")


def in_a_fork(section: Section, setting: Setting, keep: Callable[[Point], None]) -> Outcome:
    """Run a section in a forked process, which is killed soon after its deadline.

    A fork has all modules already. This process must not have used the GPU.
    """
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    limit = max(0.0, setting.left)
    with tempfile.TemporaryFile("w+") as messages:
        process = context.Process(target=_in_the_fork, args=(section, setting, send, messages.fileno()))
        with warnings.catch_warnings():
            # Python 3.12 warns if there are threads. Those of imported libraries hold no locks that a section needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        send.close()
        try:
            while receive.poll(max(0.0, setting.left) + STOP_SECONDS):
                keep(receive.recv())
            process.kill()
            error = f"not complete after its time limit of {limit:.0f} s"
        except EOFError:
            process.join()
            error = f"ended with exit code {process.exitcode}"
        process.join()
        messages.seek(0)
        text = messages.read()
    if process.exitcode == 0:
        return Outcome()
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "no message")
    return Outcome(error=f"{error}: {last}"[:1000], traceback=text[-6000:])


def _in_the_fork(section: Section, setting: Setting, send: Connection, messages: int) -> None:
    os.dup2(messages, sys.stderr.fileno())
    for point in section.points(setting):
        send.send(point)
    send.close()


def here(section: Section, setting: Setting, keep: Callable[[Point], None]) -> Outcome:
    """Run a section in this process, for tests and debuggers."""
    try:
        for point in section.points(setting):
            keep(point)
    except (RuntimeError, ValueError, LookupError, TypeError, OSError, AssertionError) as error:
        return Outcome(error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
    return Outcome()
