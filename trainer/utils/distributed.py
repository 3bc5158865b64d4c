"""Data-parallel jobs of several processes: start-up, collectives and failures.

``torchrun`` starts the processes. CPU tensors travel through gloo, GPU tensors through NCCL. ``SINGLE_PROCESS`` is
a job of one process, whose collectives return their input.

Only the main process (rank 0) writes: checkpoints, the run folder and the database.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mxd.trainer.errors import PeerLostError, SilentError, UserError
from mxd.trainer.utils.devices import accelerator

AUTO_MAP = "auto-map"
"""Device name for spreading a model over all GPUs, then main memory, then disk."""

TIMEOUT = timedelta(minutes=30)
"""Time limit of a collective. The main process may be writing a large index meanwhile."""

_LOSS_KEYWORDS = (
    "connection",
    "gloo",
    "nccl",
    "socket",
    "timed out",
    "timeout",
    "process group",
    "recv",
    "broken pipe",
)
"""Words in the errors that the backends raise when a peer has died."""


@dataclass(frozen=True)
class ProcessGroup:
    """This process's rank, the number of processes, and their collectives."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """True if this process writes."""
        return self.rank == 0

    @property
    def is_single(self) -> bool:
        """True if there is only one process."""
        return self.world_size == 1

    def device(self, requested: str) -> str:
        """Device of this process: its own GPU where ``requested`` names no particular one.

        Raises:
            UserError: ``auto-map`` with several processes on one machine.
        """
        if requested == AUTO_MAP and not self.is_single and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
            raise UserError(
                "--device=auto-map uses all GPUs of a machine, so it allows only one process per machine. "
                "Use torchrun --nproc-per-node 1, or leave --device=auto-map out."
            )
        used = _gpus()
        if self.is_single or used is None or requested not in ("auto", used):
            # gloo has no collectives for the tensors of other accelerators, such as MPS.
            return "cpu" if requested == "auto" and not self.is_single else requested
        return f"{used}:{torch.accelerator.current_device_index()}"

    def any(self, flag: bool) -> bool:
        """True if ``flag`` is true on any process. Collective: all processes must call it."""
        if self.is_single:
            return flag
        votes = torch.tensor([float(flag)])
        torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MAX)
        return bool(votes.item())

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over the processes, in place."""
        if not self.is_single:
            torch.distributed.all_reduce(tensor)
        return tensor

    def mean_(self, tensor: Tensor) -> Tensor:
        """Average a tensor over the processes, in place."""
        return tensor if self.is_single else self.sum_(tensor).div_(self.world_size)

    def mean_over_tokens(self, values_TM: Tensor) -> Tensor:
        """Mean over the tokens of all processes, [M], with gradient."""
        mean_M = values_TM.mean(dim=0)
        if self.is_single:
            return mean_M
        from torch.distributed.nn.functional import all_reduce

        total_M: Tensor = all_reduce(mean_M)
        return total_M / self.world_size

    def max_(self, tensor: Tensor) -> Tensor:
        """Element-wise maximum of a tensor over the processes, in place."""
        if not self.is_single:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
        return tensor

    def barrier(self) -> None:
        """Wait until all processes have called it."""
        if not self.is_single:
            torch.distributed.all_reduce(torch.zeros(1))

    def data_parallel(self, module: nn.Module) -> nn.Module:
        """Wrap a module so that its gradients are averaged over the processes during the backward pass."""
        if self.is_single:
            return module
        with warnings.catch_warnings():
            # Newer versions of PyTorch rename the argument, to one that older ones lack.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return nn.parallel.DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)

    def send(self, arrays: Sequence[NDArray[Any]], to: int) -> None:
        """Send arrays to a rank, which must know their number and dtypes."""
        sizes = torch.tensor([array.nbytes for array in arrays])
        torch.distributed.send(sizes, to)
        for array in arrays:
            if array.nbytes:
                torch.distributed.send(torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8)), to)

    def receive(self, dtypes: Sequence[np.dtype[Any]], source: int) -> list[NDArray[Any]]:
        """Receive the arrays of ``send``, flattened, with the given dtypes."""
        sizes = torch.zeros(len(dtypes), dtype=torch.int64)
        torch.distributed.recv(sizes, source)
        arrays = []
        for dtype, size in zip(dtypes, sizes.tolist(), strict=True):
            content = torch.empty(size, dtype=torch.uint8)
            if size:
                torch.distributed.recv(content, source)
            arrays.append(content.numpy().view(dtype))
        return arrays


SINGLE_PROCESS = ProcessGroup()


def under_torchrun() -> bool:
    """True if ``torchrun`` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


@contextmanager
def init_process_group() -> Iterator[ProcessGroup]:
    """Join the processes that ``torchrun`` started; ``SINGLE_PROCESS`` without ``torchrun``.

    Raises:
        PeerLostError: another process ended early.
        UserError: there are more processes than GPUs on this machine.
        UserError: raised inside the block. If several processes fail, all but the first raise SilentError.
    """
    if not under_torchrun():
        yield SINGLE_PROCESS
        return
    from torch.distributed.rendezvous import rendezvous

    store, rank, world_size = next(rendezvous("env://"))
    gpus, backend = _gpus(), "gloo"
    if gpus is not None:
        processes, count = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.accelerator.device_count()
        if processes > count:
            message = f"Too many processes: {processes}, but {count} GPUs. Use torchrun --nproc-per-node {count}."
            raise UserError(message) if store.add("failures", 1) == 1 else SilentError(message)
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
        backend = f"cpu:gloo,{gpus}:{torch.distributed.get_default_backend_for_device(gpus)}"
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
    try:
        yield ProcessGroup(rank, world_size)
    except UserError as error:
        # Only the first failure is reported; the other processes merely lose their peer.
        raise error if store.add("failures", 1) == 1 else SilentError(str(error)) from error
    except RuntimeError as error:
        if not _is_peer_loss(error):
            raise
        message = f"Process {rank} of {world_size} stopped because another process ended. Saved checkpoints are intact."
        raise PeerLostError(message) if store.add("failures", 1) == 1 else SilentError(message) from error
    finally:
        torch.distributed.destroy_process_group()


def _gpus() -> str | None:
    """Type of the accelerators of which each process has its own; None if there are none, or if they are one (MPS)."""
    found = accelerator()
    return None if found is None or found.type == "mps" else found.type


def _is_peer_loss(error: RuntimeError) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.distributed.DistError) or any(keyword in text for keyword in _LOSS_KEYWORDS)
