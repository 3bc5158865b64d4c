"""Data-parallel jobs of several processes: start-up, collectives and failures.

``torchrun`` starts the processes. CPU tensors travel through gloo, GPU tensors through NCCL. ``SINGLE_PROCESS`` is
a job of one process, whose collectives return their input.

Only the main process (rank 0) writes: checkpoints, the run folder and the database.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from mxd.trainer.errors import PeerLostError, SilentError, UserError, is_out_of_memory
from mxd.trainer.utils.devices import accelerator

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

T = TypeVar("T")
Collective = Callable[[Tensor], Tensor]
AUTO_MAP = "auto-map"
"""Device name for spreading a model over all GPUs, then main memory, then disk."""

TIMEOUT = timedelta(minutes=30)
"""Time limit of a collective. ``ProcessGroup.take_turn`` has none."""

MEETING = timedelta(seconds=20)
"""Time limit for reaching the job's store with a failure."""

BEAT_SECONDS = 0.5
"""Time between two signs of life of a process."""
POLL_SECONDS = 0.1
"""Time between two looks at the others."""
SILENT_SECONDS = 5.0
"""Time without a sign of life after which a process counts as ended, once a collective has failed or SIGTERM came."""
WAIT_SECONDS = 600.0
"""The same while a process works alone and nothing has failed."""
FAILURE = "failure"
"""Key of the first failure in the store: the rank, a colon and the message."""
INTACT = "Saved checkpoints are intact."


class Peers:
    """Signs of life and the first failure of the processes of a job, in the job's key-value store."""

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self.store, self.rank, self.world_size = store, rank, world_size
        self.told_to_stop = Event()
        """Set once SIGTERM has come: ``torchrun`` sends it when another process has ended."""
        self._turns = 0

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Show signs of life inside the context."""
        ended = Event()

        def beat() -> None:
            try:
                while not ended.wait(BEAT_SECONDS):
                    self.store.add(f"beats of {self.rank}", 1)
            except torch.distributed.DistError:
                return  # the store has ended before this process, which will notice at its next collective

        thread = Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def beats(self, rank: int) -> int:
        return int(self.store.add(f"beats of {rank}", 0))

    def report(self, message: str) -> bool:
        """Record a failure of this process, unless another has failed. Returns whether its own is the first."""
        try:
            first = self.store.compare_set(FAILURE, "", f"{self.rank}:{message}")
        except torch.distributed.DistError:
            return True  # the store has ended, and the others cannot be told
        return first.decode().startswith(f"{self.rank}:")

    def take_turn(self, work: Callable[[], T]) -> T | None:
        self._turns += 1
        done = f"turn {self._turns}"
        if self.rank == 0:
            result = work()
            self.store.set(done, "")
            return result
        beats, since = self.beats(0), time.monotonic()
        while not self.store.check([done]):
            if self.store.check([FAILURE]):
                raise self._failure()
            time.sleep(POLL_SECONDS)
            if (now := self.beats(0)) != beats:
                beats, since = now, time.monotonic()
            elif time.monotonic() - since > (SILENT_SECONDS if self.told_to_stop.is_set() else WAIT_SECONDS):
                raise self._silence([0])
        return None

    def loss(self, error: RuntimeError) -> UserError | None:
        """Error to raise if another process caused the error; None if it is this process's own. gloo raises a plain
        RuntimeError if a process has ended, so what the store tells of the others decides."""
        try:
            before = [self.beats(rank) for rank in range(self.world_size)]
            for _ in range(int(SILENT_SECONDS / POLL_SECONDS)):  # not a clock: this process may itself be halted
                if self.store.check([FAILURE]):
                    break
                time.sleep(POLL_SECONDS)
            if self.store.check([FAILURE]):
                return self._failure()
            silent = [rank for rank, beats in enumerate(before) if rank != self.rank and self.beats(rank) == beats]
        except torch.distributed.DistError:
            return PeerLostError(f"{self._stopped} the process that holds the job's store ended. {INTACT}")
        if silent:
            return self._silence(silent)
        if isinstance(error, torch.distributed.DistError):
            return PeerLostError(f"{self._stopped} the processes lost their connection: {error} {INTACT}")
        return None

    @property
    def _stopped(self) -> str:
        return f"Process {self.rank} of {self.world_size} stopped because"

    def _failure(self) -> UserError:
        """The recorded failure of another process. That one tells it on its machine, one process on each other."""
        rank, _, told = self.store.get(FAILURE).decode().partition(":")
        message = f"{self._stopped} process {rank} failed: {told}"
        per_machine = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if self.rank % per_machine == 0 and self.rank // per_machine != int(rank) // per_machine:
            return PeerLostError(message)
        return SilentError(message)

    def _silence(self, silent: Sequence[int]) -> UserError:
        lost = "process " + " and process ".join(map(str, silent))
        message = f"{self._stopped} {lost} ended without a message. {INTACT}"
        return PeerLostError(message) if self.report(message) else SilentError(message)


@dataclass(frozen=True)
class ProcessGroup:
    """This process's rank, the number of processes, and their collectives."""

    rank: int = 0
    world_size: int = 1
    peers: Peers | None = None
    """The other processes, as far as this one knows; None if there are none."""

    @property
    def is_main(self) -> bool:
        """True if this process writes."""
        return self.rank == 0

    @property
    def is_single(self) -> bool:
        return self.world_size == 1

    @property
    def nodes(self) -> int:
        return self.world_size // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) or 1

    def device(self, requested: str) -> str:
        """Device of this process: its own GPU where ``requested`` names no particular one. Raises UserError if
        ``auto-map`` with several processes on one machine."""
        if requested == AUTO_MAP and not self.is_single and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
            raise UserError(
                "--device=auto-map uses all GPUs of a machine, so it allows only one process per machine. "
                "Use 'torchrun --nproc-per-node 1', or leave --device=auto-map out."
            )
        used = _gpus()
        if self.is_single or used is None or requested not in ("auto", used):
            # gloo has no collectives for the tensors of other accelerators, such as MPS.
            return "cpu" if requested == "auto" and not self.is_single else requested
        return f"{used}:{torch.accelerator.current_device_index()}"

    def any(self, flag: bool) -> bool:
        """True if ``flag`` is true on any process. Collective: all processes must call it."""
        return bool(self.max_(torch.tensor([float(flag)])))

    def sum_(self, tensor: Tensor) -> Tensor:
        if not self.is_single:
            torch.distributed.all_reduce(tensor)
        return tensor

    def mean_(self, tensor: Tensor) -> Tensor:
        return tensor if self.is_single else self.sum_(tensor).div_(self.world_size)

    def average(self, values: Tensor) -> Tensor:
        """Average of a tensor over the processes, with gradient."""
        return values if self.is_single else with_gradient(values, self._total, self._total) / self.world_size

    def _total(self, values: Tensor) -> Tensor:
        return self.sum_(values.clone(memory_format=torch.contiguous_format))

    def max_(self, tensor: Tensor) -> Tensor:
        if not self.is_single:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
        return tensor

    def collect(self, rows: Tensor, to: Collection[int]) -> Tensor | None:
        """Concatenate the rows [t, …] of all processes in those of the ranks ``to``, [T, …]; None in the others."""
        if self.is_single:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.world_size)] if self.rank in to or len(to) > 1 else None
        if len(to) > 1:
            torch.distributed.all_gather(parts, rows)
        else:
            torch.distributed.gather(rows, parts, next(iter(to)))
        return torch.cat(parts) if parts is not None and self.rank in to else None

    def all_items(self, items: list[T]) -> list[T]:
        if self.is_single:
            return items
        lists: list[list[T]] = [[] for _ in range(self.world_size)]
        torch.distributed.all_gather_object(lists, items)
        return list(chain.from_iterable(lists))

    def barrier(self) -> None:
        self.sum_(torch.zeros(1))

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """The main process enters the context first, and the others once it has left it. Collective."""
        if not self.is_main:
            self.barrier()
        yield
        if self.is_main:
            self.barrier()

    def take_turn(self, work: Callable[[], T]) -> T | None:
        """Call ``work`` in the main process while the others wait, however long it takes. Return its result there, None
        in the others. Raises PeerLostError if the main process failed or ended; SilentError if another process tells
        the user."""
        return work() if self.peers is None else self.peers.take_turn(work)

    def send(self, objects: Iterable[object], to: int) -> None:
        """Send objects to a rank, which must know their number. Only one of them at a time is copied."""
        for content in objects:
            torch.distributed.send_object_list([content], to)

    def receive(self, number: int, source: int) -> list[Any]:
        received = [[None] for _ in range(number)]
        for content in received:
            torch.distributed.recv_object_list(content, source)
        return [content for (content,) in received]


SINGLE_PROCESS = ProcessGroup()


class _Collective(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, collective: Collective, transpose: Collective) -> Tensor:
        ctx.transpose = transpose
        return collective(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose(gradient), None, None


def with_gradient(rows: Tensor, collective: Collective, transpose: Collective) -> Tensor:
    """Result of a linear collective, whose gradient travels back by its transpose. PyTorch's own are deprecated
    (``torch.distributed.nn.functional``) or private, with names that change."""
    result: Tensor = _Collective.apply(rows, collective, transpose)  # type: ignore[no-untyped-call]
    return result


def is_first_failure(message: str) -> bool:
    """True if no other process of the job has failed before this one, which has not joined them or no longer."""
    from torch.distributed.rendezvous import rendezvous

    try:
        return Peers(*next(rendezvous("env://", timeout=MEETING))).report(message)
    except torch.distributed.DistError:
        return True  # the job has ended


@contextmanager
def init_process_group() -> Iterator[ProcessGroup]:
    """Join the processes that ``torchrun`` started; ``SINGLE_PROCESS`` without ``torchrun``.

    Raises:
        PeerLostError: another process ended early. The message names it.
        UserError: there are more processes than GPUs on this machine.
        UserError: raised inside the block. If several processes fail, all but the first raise SilentError.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield SINGLE_PROCESS
        return
    from torch.distributed.rendezvous import rendezvous

    store, rank, world_size = next(rendezvous("env://"))
    gpus, backend = _gpus(), "gloo"
    if gpus is not None:
        processes, count = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.accelerator.device_count()
        if processes > count:
            raise UserError(
                f"Too many processes: {processes}, but {count} GPUs. Use 'torchrun --nproc-per-node {count}'."
            )
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
        backend = f"cpu:gloo,{gpus}:{torch.distributed.get_default_backend_for_device(gpus)}"
    peers = Peers(store, rank, world_size)
    with peers.beating(), setting_on_sigterm(peers.told_to_stop):
        try:  # another process may end while this one still connects
            with _ending_on_sigterm():
                torch.distributed.init_process_group(
                    backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT
                )
            yield ProcessGroup(rank, world_size, peers)
        except (PeerLostError, SilentError):
            raise
        except UserError as error:
            if peers.report(str(error)):
                raise
            raise SilentError(str(error)) from error
        except BaseException as error:
            lost = peers.loss(error) if isinstance(error, RuntimeError) and not is_out_of_memory(error) else None
            if lost is not None:
                raise lost from error
            peers.report(f"{type(error).__name__}: {error}")
            error.add_note(f"Process {rank} of {world_size}.")
            raise
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process, whatever it listens for otherwise. A process that waits for one that never arrives
    does nothing else. ``torchrun`` notices and sends SIGTERM."""
    listening = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, listening)


@contextmanager
def setting_on_sigterm(event: Event) -> Iterator[None]:
    """Set an event on SIGTERM, besides what the signal does otherwise."""
    listening = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL

    def note(number: int, frame: FrameType | None) -> None:
        event.set()
        if callable(listening):
            listening(number, frame)
        else:
            signal.signal(number, listening)
            signal.raise_signal(number)

    signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, listening)


def _gpus() -> str | None:
    """Type of the accelerators of which each process has its own; None if there are none, or if they are one (MPS)."""
    found = accelerator()
    return None if found is None or found.type == "mps" else found.type


_END = object()
"""Stands for the end of an iterator: a future cannot carry StopIteration."""


def prefetch(items: Iterator[T], depth: int) -> Generator[T]:
    """Yield from ``items``, computing up to ``depth`` of them ahead in a background thread. Only useful when producing
    an item releases the GIL (tokenising, file reads). Exceptions from ``items`` are re-raised in order. Closing the
    generator waits for the item being computed, starts no new one and joins the thread."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as thread:
        pending: deque[Future[Any]] = deque(thread.submit(next, items, _END) for _ in range(depth))
        try:
            while (item := pending.popleft().result()) is not _END:
                pending.append(thread.submit(next, items, _END))
                yield item
        finally:
            for future in pending:
                future.cancel()
