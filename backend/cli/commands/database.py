"""``mxd database``, ``token``, ``remove`` and ``doctor``: maintenance, and checks with advice for every problem."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from packaging.requirements import Requirement
from pydantic import Field

from mxd.backend.cli.base import Command, FlagsOf, Positional
from mxd.backend.cli.console import existing_database, existing_url
from mxd.backend.settings import Role, Settings, listen
from mxd.trainer.config.base import SAMPLE
from mxd.trainer.errors import KEEP_LABELS, NotFoundError, UserError

if TYPE_CHECKING:
    import torch

MEGABYTE = 10**6


class DatabaseCommand(Command):
    """Check, rescue, compact or upgrade the database.

    Check writes nothing, and exits with code 1 if something is damaged. Rescue saves labels, notes, tags, lists,
    sessions and access tokens from a damaged SQLite file, which is only read. Replace it with the new one afterwards,
    and index the runs again. Compact reclaims the disk space of deleted data, and fails while another process is
    writing. Upgrade converts a database written by an earlier version, completely or, on any error, not at all. Stop
    all servers and back up the database first.
    """

    examples: ClassVar = (
        "mxd database check --sample 5000",
        "mxd database rescue rescued.sqlite",
        "mxd database upgrade --database postgresql+psycopg://user@host/mxd",
    )

    action: Positional[Literal["check", "rescue", "compact", "upgrade"]]
    """Task."""
    file: Positional[Path | None] = None
    """With rescue: new SQLite file to write."""
    sample: Annotated[int, Field(ge=0)] = 200
    """With check: random experts per run whose top examples are decoded and compared with their statistics."""

    def run(self) -> int:
        if (self.file is None) == (self.action == "rescue"):
            raise UserError("'mxd database rescue' needs a new file to write, and no other action does.")
        if self.action == "check":
            return self._check()
        if self.file is not None:
            self._rescue(self.file)
        elif self.action == "compact":
            from mxd.backend.database.maintenance import compact_database

            with existing_database(self.settings()) as database:
                result = compact_database(database)
            before, after = (size / MEGABYTE for size in result.values())
            self.report(result, f"Database size: {before:,.1f} MB before, {after:,.1f} MB after.")
        else:
            from mxd.backend.database.maintenance import upgrade_database

            upgraded = upgrade_database(self.settings().database_url)
            changed = [
                f"Upgraded {what} from version {before} to {after}."
                for what, before, after in (
                    ("the database", upgraded.before, upgraded.after),
                    ("the tables of annotations", upgraded.annotations_before, upgraded.annotations_after),
                )
                if before != after
            ]
            current = f"The database is up to date (version {upgraded.after}). Nothing was changed."
            self.report(asdict(upgraded), " ".join(changed) or current)
        return 0

    def _check(self) -> int:
        from mxd.backend.database.engine import open_maybe_damaged, reading
        from mxd.backend.database.maintenance import check_database

        database = open_maybe_damaged(existing_url(self.settings()))
        with reading(database) as session:
            findings = list(check_database(session, self.sample))
        database.dispose()
        url = database.url.render_as_string()
        advice = f"Index the runs named here again. If SQLite reports damage: {KEEP_LABELS}"
        text = [*findings, advice] if findings else [f"{url} is intact."]
        self.report({"database": url, "findings": findings}, "\n".join(text))
        return int(bool(findings))

    def _rescue(self, file: Path) -> None:
        from sqlalchemy.engine import make_url

        from mxd.backend.database.maintenance import rescue_annotations

        url = make_url(self.settings().database_url)
        if url.get_backend_name() != "sqlite" or not url.database:
            raise UserError("Only SQLite files can be rescued. Restore a backup of the PostgreSQL database.")
        copied = rescue_annotations(Path(url.database), file)
        rows = ", ".join(f"{count} {table}" for table, count in copied.items())
        self.report({"file": str(file), "copied": copied}, f"Saved to {file}: {rows}.")


class TokenCommand(Command):
    """Create, list or revoke access tokens of a server exposed on the network.

    create: create a token and print it once. list: list the tokens in use, without their secrets. revoke: revoke a
    token; running servers reject it within five seconds.
    """

    examples: ClassVar = (
        "mxd token create --role write --name alice",
        "mxd token list --data /data/mxd --json",
        "mxd token revoke 3",
    )

    action: Positional[Literal["create", "list", "revoke"]]
    """Task."""
    id: Positional[Annotated[int, Field(ge=0, lt=2**31)] | None] = None
    """With revoke: number of the token in 'mxd token list'."""
    role: Role = "read"
    """With create. read: browse, and route within limits. write: also steer, label and delete."""
    name: Annotated[str, Field(min_length=1, max_length=100)] = "unnamed"
    """With create: person or purpose that the token is for."""

    def run(self) -> None:
        from sqlalchemy.orm import Session

        from mxd.backend.database.annotations import SHOWN_ONCE, create_token, revoke_token, tokens
        from mxd.trainer.storage.database.open import writing

        if (self.id is None) == (self.action == "revoke"):
            raise UserError("'mxd token revoke' needs the number of a token, and no other action does.")
        with self.opened() as database:
            if self.action == "create":
                with writing(database) as session:
                    token = create_token(session, self.role, self.name)
                self.report(
                    asdict(token), f"{token.token}\nToken {token.id} ({token.role}) for {token.name}. {SHOWN_ONCE}"
                )
            elif self.id is not None:
                with writing(database) as session:
                    revoke_token(session, self.id)
                self.report({"id": self.id}, f"Revoked token {self.id}.")
            else:
                with Session(database) as session:
                    rows = [
                        {"id": it.id, "role": it.role, "name": it.name, "created_at": it.created_at.isoformat()}
                        for it in tokens(session)
                    ]
                lines = [f"{row['id']}  {row['role']}  {row['name']}  since {row['created_at']}" for row in rows]
                self.report(rows, "\n".join(lines) or "No tokens. Create one with 'mxd token create'.")


class RemoveCommand(Command):
    """Delete a run: its folder, its metrics and its index. Asks for confirmation."""

    examples: ClassVar = (
        "mxd remove gpt2-l8-k32",
        "mxd remove gpt2-l8-k32 --yes",
        "mxd remove gpt2-l8-k32 --with-labels",
    )

    name: Positional[str]
    """Name of the run."""
    yes: bool = False
    """Delete without asking."""
    with_labels: bool = False
    """Also delete the labels, notes, tags, lists and sessions that users wrote. They cannot be restored."""

    def run(self) -> int:
        from sqlalchemy import select

        from mxd.backend.database.engine import count_written, reading, remove_written
        from mxd.trainer.storage.database.open import writing
        from mxd.trainer.storage.database.tables import RunRecord
        from mxd.trainer.storage.run import run_names
        from mxd.trainer.storage.run_records import remove_run
        from mxd.trainer.utils.display import unknown_run

        data = self.settings().data
        with self.opened() as database:
            with reading(database) as session:
                known = {*run_names(data), *session.scalars(select(RunRecord.name))}
                if self.name not in known:
                    raise NotFoundError(unknown_run(self.name, known))
                written = count_written(session, self.name)
            if written and not self.with_labels:
                raise UserError(
                    f"Run '{self.name}' has {written} user-written labels, notes, tags, lists and sessions. "
                    "Add --with-labels to delete them too."
                )
            if not self.yes:
                if not sys.stdin.isatty():
                    raise UserError(
                        f"Cannot ask whether to delete run '{self.name}'. Add --yes to delete it without asking."
                    )
                kept = f", its index and {written} labels, notes, tags, lists and sessions"
                more = kept if written else " and its index"
                print(f"Delete run '{self.name}'{more}? [y/N] ", end="", file=sys.stderr, flush=True)
                if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                    self.report({"run": self.name, "removed": False}, "Nothing was deleted.")
                    return 1
            remove_run(self.name, data, database)
            with writing(database) as session:
                remove_written(session, self.name)
        self.report({"run": self.name, "removed": True, "labels_and_notes": written}, f"Deleted run '{self.name}'.")
        return 0


Verdict = Literal["good", "warning", "bad"]

PACKAGES = ("torch", "transformers", "tokenizers", "fastapi", "sqlalchemy", "pydantic")
GIGABYTE = 10**9
LOW_DISK = 5 * GIGABYTE
MIN_DISK = 500_000_000
LARGEST_READ = 2 * GIGABYTE
"""Bytes of weights that are read to find missing, misshapen and non-finite ones."""
MARKS: dict[Verdict, str] = {"good": "ok", "warning": "warn", "bad": "BAD"}
MIN_SQLITE = (3, 35, 0)
NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "gpfs", "lustre"}
    | {"nfs", "nfs4", "orangefs", "smb3", "wekafs"}
)
"""Types of network file systems, as the kernel names them."""


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: str
    verdict: Verdict
    state: str
    advice: str | None = None
    """Instructions for fixing the problem, or None if there is none."""


class DoctorCommand(Command):
    """Check versions, device, disk, database, runs, demo, frontend and port. Exits with code 1 if a check fails."""

    examples: ClassVar = ("mxd doctor", "mxd doctor --port 8080 --device cuda", "mxd doctor --data /data/mxd --json")

    flags: Annotated[dict[str, Any], FlagsOf(Settings, only=frozenset({"host", "port", "device"}))]

    def run(self) -> int:
        settings = self.settings(**self.flags)
        checks = (_versions, _device, _disk, _database, _runs, _demo, _server)
        findings = [finding for check in checks for finding in check(settings)]
        lines = [
            f"{MARKS[each.verdict]:4}  {each.check}: {each.state}" + (f"\n      {each.advice}" if each.advice else "")
            for each in findings
        ]
        self.report([asdict(finding) for finding in findings], "\n".join(lines))
        return int(any(finding.verdict == "bad" for finding in findings))


def _versions(_settings: Settings) -> Iterator[Finding]:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    yield Finding("versions", "good", f"Python {platform.python_version()}, {versions}")
    for name in importlib.metadata.requires("mxd-explorer") or ():
        needed = Requirement(name)
        if needed.marker is None and not needed.specifier.contains(found := importlib.metadata.version(needed.name)):
            advice = f"Tested: {needed.specifier}. Run: pip install '{needed.name}{needed.specifier}'"
            yield Finding(f"package {needed.name}", "warning", f"{found}, which is not a tested version", advice)
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        advice = f"Install a Python {sys.version_info.major}.{sys.version_info.minor} build with a newer SQLite."
        yield Finding("sqlite", "bad", f"SQLite {sqlite3.sqlite_version}; 3.35 or newer is required", advice)


def _device(settings: Settings) -> Iterator[Finding]:
    import torch

    from mxd.trainer.language_model.loading import choose_device
    from mxd.trainer.utils.devices import device_memory, device_name

    try:
        device = choose_device(settings.device)
    except UserError as error:
        yield Finding("device", "bad", str(error), "Choose another device with --device or MXD_DEVICE.")
        return
    memory = device_memory(device)
    if memory is not None:
        room = f"{memory.free / GIGABYTE:.1f} of {memory.total / GIGABYTE:.1f} GB free"
        yield Finding("device", "good", f"{device}: {device_name(device)}, {room}")
        yield _computation(device)
        return
    advice = None
    if torch.version.cuda is not None:
        advice = "This PyTorch is built for CUDA but finds no GPU. Check the output of nvidia-smi."
    yield Finding("device", "warning" if advice else "good", device_name(device), advice)


def _computation(device: torch.device) -> Finding:
    """Compute something small on an accelerator, with a kernel of this package; tell what runs where."""
    import warnings

    import torch

    from mxd.trainer.language_model.loading import choose_dtype
    from mxd.trainer.layers import ops

    dtype = choose_dtype(device)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kernels = ops.ops_on(device)
        matrix = torch.ones(8, 8, device=device, dtype=dtype)
        result = float((matrix @ matrix).float().sum())
    except RuntimeError as error:  # a driver that is too old, a full device, a build for other GPUs
        return Finding("computation", "bad", str(error), "Update the driver or PyTorch, or use --device cpu.")
    if result != 8**3:
        return Finding("computation", "bad", f"8 * 8 * 8 is {result:g} on {device}", "Use --device cpu.")
    used = "PyTorch's operations" if kernels is ops else "Triton kernels"
    name = str(dtype).removeprefix("torch.")
    state = f"language models in {name} and layers in float32 on {device.type}, with {used}; sampling on the CPU"
    if device.type not in ("cpu", "cuda"):
        state += ", and float64 and matrix decompositions, too"
    if caught:
        return Finding("computation", "warning", state, str(caught[0].message))
    return Finding("computation", "good", state)


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = next(path for path in (settings.data.resolve(), *settings.data.resolve().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    verdict: Verdict = "bad" if free < MIN_DISK else "warning" if free < LOW_DISK else "good"
    advice = None if verdict == "good" else "Free disk space, or set MXD_DATA to a folder on another disk."
    yield Finding("disk", verdict, f"{free / GIGABYTE:.1f} GB free in {folder}", advice)
    import psutil
    from sqlalchemy import make_url

    database = make_url(settings.database_url)
    path = Path(database.database or folder).resolve()
    holding = [one for one in psutil.disk_partitions(all=True) if path.is_relative_to(one.mountpoint)]
    kind = max(holding, key=lambda one: len(one.mountpoint)).fstype if holding else ""
    if database.get_backend_name() == "sqlite" and kind in NETWORK:
        state = (
            f"{database.database} is on a network file system ({kind}), where SQLite's write-ahead log does not work"
        )
        advice = "Set MXD_DATABASE to PostgreSQL (postgresql+psycopg://…), or to a SQLite file on a local disk."
        yield Finding("network file system", "warning", state, advice)


def _database(settings: Settings) -> Iterator[Finding]:
    from mxd.backend.database.engine import reading, size_in_bytes
    from mxd.backend.queries.runs import count_examples

    try:
        with existing_database(settings) as database:
            with reading(database) as session:
                examples = count_examples(session)
            size = size_in_bytes(database) / 10**6
            url = database.url.render_as_string()
    except NotFoundError:
        yield Finding("database", "good", f"none yet in {settings.data}", "'mxd train' creates it.")
    except UserError as error:
        yield Finding("database", "bad", str(error), "Choose another database with --database or MXD_DATABASE.")
    else:
        yield Finding("database", "good", f"{url}: {size:,.1f} MB, {examples:,} top examples")


def _runs(settings: Settings) -> Iterator[Finding]:
    from mxd.trainer.storage.run import Run, run_names

    names = run_names(settings.data)
    if not names:
        advice = "Train one with 'mxd train', or explore the bundled demo with 'mxd demo'."
        yield Finding("runs", "good", f"none yet in {settings.data}", advice)
    for name in names:
        try:
            source = Run.load(name, settings.data).language_model_source
        except UserError as error:
            yield Finding(f"run {name}", "bad", str(error), f"Delete it with 'mxd remove {name}'.")
            continue
        if Path(source).is_absolute() and not Path(source).exists():
            advice = "Restore it. Browsing works without the language model; routing and steering do not."
            yield Finding(f"run {name}", "warning", f"language model not found: {source}", advice)
        elif (problem := _weights_problem(Path(source))) is not None:
            yield Finding(
                f"run {name}", "bad", f"language model damaged: {problem}", "Copy or download the files again."
            )
        else:
            size = _weights_bytes(Path(source)) if Path(source).is_absolute() else 0
            unread = f", weights not read ({size / GIGABYTE:.1f} GB)" if size > LARGEST_READ else ""
            yield Finding(f"run {name}", "good", f"language model {source}{unread}{_origin(source)}")


def _demo(_settings: Settings) -> Iterator[Finding]:
    from mxd.trainer.language_model.sources import is_converted, is_gguf
    from mxd.trainer.storage.run import Run, run_names

    for source in sorted({Run.load(name, SAMPLE).language_model_source for name in run_names(SAMPLE)}):
        try:
            is_ready = is_converted(source) if is_gguf(source) else True
        except NotFoundError as error:
            yield Finding("demo", "warning", f"its language model {source} is missing", str(error))
        else:
            state = "ready" if is_ready else "converted when the demo starts"
            yield Finding("demo", "good", f"language model {source}: {state}")


@cache
def _weights_problem(folder: Path) -> str | None:
    """Return what is wrong with the weights in a local folder, if anything. Large weights are not read."""
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy"):
                pass
        except (SafetensorError, OSError):
            return str(path)
    if not 0 < _weights_bytes(folder) <= LARGEST_READ:
        return None
    import torch

    from mxd.trainer.language_model.loading import load_module

    try:
        load_module(str(folder), torch.bfloat16)
    except UserError as error:
        return str(error)
    return None


def _weights_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _origin(source: str) -> str:
    """Return name, organisation, licence and address of a GGUF file that has been converted, as it states them."""
    from mxd.trainer.language_model.sources import is_converted, is_gguf, read_origin

    try:
        if not is_gguf(source) or not is_converted(source):
            return ""
        stated = read_origin(source)
    except UserError as error:
        return f" ({error})"
    return "".join(f", {name} {value}" for name, value in stated.items()) or ", without a stated licence"


def _server(settings: Settings) -> Iterator[Finding]:
    built = (settings.frontend / "index.html").is_file()
    advice = None if built else "Build it with 'make install'."
    state = f"{'built' if built else 'not built'}, in {settings.frontend}"
    yield Finding("frontend", "good" if built else "warning", state, advice)
    try:
        listen(settings.host, settings.port).close()
    except UserError as error:
        yield Finding("port", "warning", str(error), "This is expected if your own server is running.")
        return
    access = "with a token" if settings.requires_tokens else "from this machine without a token"
    yield Finding("port", "good", f"{settings.port} on {settings.host} is free; access {access}")
