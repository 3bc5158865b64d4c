"""``mxd doctor``: is everything in order on this machine, and what to do where it is not."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from backend.commands.base import Command
from backend.commands.serve import listen
from backend.settings import Settings
from trainer.errors import UserError

Verdict = Literal["good", "warning", "bad"]

PACKAGES = ("torch", "transformers", "tokenizers", "fastapi", "sqlalchemy", "pydantic")
GIGABYTE = 10**9
LITTLE_ROOM = 5 * GIGABYTE
NO_ROOM = 500_000_000
MARKS: dict[Verdict, str] = {"good": "ok", "warning": "warn", "bad": "BAD"}
NO_GPU = "This torch is built for CUDA, but it finds no GPU: see what nvidia-smi says."
SQLITE_NEEDED = (3, 35, 0)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    found: str
    advice: str | None = None
    """What to do; None where it is good."""


class DoctorCommand(Command):
    """Look at versions, device, disk, store, runs, front end and port; exit code 1 where something is bad."""

    def run(self) -> int:
        """Look at each, and say what was found."""
        findings = list(examine(self.settings()))
        self.report([asdict(it) for it in findings], "\n".join(map(_words, findings)))
        return int(any(it.verdict == "bad" for it in findings))


def _words(it: Finding) -> str:
    advice = f"\n      {it.advice}" if it.advice else ""
    return f"{MARKS[it.verdict]:4}  {it.check}: {it.found}{advice}"


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything, one finding after the other."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _versions,
        _device,
        _disk,
        _store,
        _runs,
        _front_end,
        _port,
    )
    for check in checks:
        yield from check(settings)


def _versions(_settings: Settings) -> Iterator[Finding]:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    yield Finding("versions", "good", f"Python {platform.python_version()}, {versions}")
    if sqlite3.sqlite_version_info < SQLITE_NEEDED:
        advice = f"Python {sys.version_info.major}.{sys.version_info.minor} of another build brings a newer one."
        yield Finding("sqlite", "bad", f"SQLite {sqlite3.sqlite_version}, and 3.35 is needed", advice)


def _device(settings: Settings) -> Iterator[Finding]:
    import torch

    from trainer.loading import choose_device

    try:
        device = choose_device(settings.device)
    except UserError as error:
        yield Finding("device", "bad", str(error), "Choose another with --device or MXD_DEVICE.")
        return
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        name = torch.cuda.get_device_name(device)
        yield Finding("device", "good", f"{name}, {free / GIGABYTE:.1f} of {total / GIGABYTE:.1f} GB free")
    else:
        advice = (
            None if torch.version.cuda is None else "This torch is built for CUDA, but it finds no GPU: see nvidia-smi."
        )
        yield Finding("device", "warning" if advice else "good", f"CPU, {torch.get_num_threads()} threads", advice)


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = next(path for path in (settings.data.resolve(), *settings.data.resolve().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    verdict: Verdict = "bad" if free < NO_ROOM else "warning" if free < LITTLE_ROOM else "good"
    advice = None if verdict == "good" else "Make room, or keep runs and store elsewhere with MXD_DATA."
    yield Finding("disk", verdict, f"{free / GIGABYTE:.1f} GB free in {folder}", advice)


def _store(settings: Settings) -> Iterator[Finding]:
    from backend.database import open_database, reading, size_in_bytes
    from backend.queries.runs import count_contexts

    if settings.store is None and not (settings.data / "mxd.sqlite").exists():
        yield Finding("store", "good", f"none yet in {settings.data}", "mxd train makes it.")
        return
    try:
        store = open_database(settings.store_url)
    except UserError as error:
        yield Finding("store", "bad", str(error), "Name another store with --store or MXD_STORE.")
        return
    with reading(store) as session:
        contexts = count_contexts(session)
    size = size_in_bytes(store) / 10**6
    store.dispose()
    yield Finding("store", "good", f"{store.url.render_as_string()}: {size:,.1f} MB, {contexts:,} contexts")


def _runs(settings: Settings) -> Iterator[Finding]:
    from trainer.run import Run, run_names

    names = run_names(settings.data)
    if not names:
        advice = "Fit one with mxd train, or look at the shipped one with mxd demo."
        yield Finding("runs", "good", f"none yet under {settings.data}", advice)
    for name in names:
        try:
            source = Run.load(name, settings.data).language_model_source
        except UserError as error:
            yield Finding(f"run {name}", "bad", str(error), f"Take it away with mxd remove {name}.")
            continue
        if Path(source).is_absolute() and not Path(source).is_dir():
            advice = "Put the language model back: browsing works without it, routing and steering do not."
            yield Finding(f"run {name}", "warning", f"its language model {source} is not there", advice)
        else:
            yield Finding(f"run {name}", "good", f"of {source}")


def _front_end(settings: Settings) -> Iterator[Finding]:
    built = (settings.frontend / "index.html").is_file()
    advice = None if built else "Build it with make install."
    found = f"{'built' if built else 'not built'}, in {settings.frontend}"
    yield Finding("front end", "good" if built else "warning", found, advice)


def _port(settings: Settings) -> Iterator[Finding]:
    try:
        listen(settings.host, settings.port).close()
    except UserError as error:
        yield Finding("port", "warning", str(error), "Unless that is the server of this very data folder.")
        return
    access = "with a token" if settings.requires_tokens else "anybody on this machine"
    yield Finding("port", "good", f"{settings.port} on {settings.host} is free; open to {access}")
