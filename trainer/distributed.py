"""Several processes on one piece of work: start-up, ranks, and what they tell each other.

``torchrun`` starts the processes and says to each which one it is; everything that travels does so through
``torch.distributed``: gloo for tensors on CPUs, NCCL for those on GPUs. A process by itself is ``ALONE``, and all of
this then costs nothing.

The first rank is the only one that writes: checkpoints, the run directory, the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer.config import SPREAD
from trainer.errors import LostError, SilentError, UserError

PATIENCE = timedelta(minutes=30)
"""How long a rank waits for the others: the first may be writing a large index meanwhile."""
_SIGNS_OF_LOSS = (
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


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this one is, and how it talks to the others."""

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.world == 1

    def device(self, asked: str) -> str:
        """The device that a name means to this process: of several GPUs its own.

        Raises:
            UserError: a language model is to be spread over the GPUs that other processes have.
        """
        if asked == SPREAD and not self.is_alone and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
            raise UserError(
                "A language model is spread over all GPUs of a machine, so a machine can have one process alone; "
                "give torchrun --nproc-per-node 1, or leave --device spread out."
            )
        if self.is_alone or asked not in ("auto", "cuda") or not torch.cuda.is_available():
            return asked
        return f"cuda:{torch.cuda.current_device()}"

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank; all ranks must ask."""
        if self.is_alone:
            return flag
        votes = torch.tensor([float(flag)])
        torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MAX)
        return bool(votes.item())

    def sum_(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over the ranks, in place."""
        if not self.is_alone:
            torch.distributed.all_reduce(tensor)
        return tensor

    def mean_(self, tensor: Tensor) -> Tensor:
        """Mean of a tensor over the ranks, in place."""
        return tensor if self.is_alone else self.sum_(tensor).div_(self.world)

    def max_(self, tensor: Tensor) -> Tensor:
        """Largest value of each entry over the ranks, in place."""
        if not self.is_alone:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
        return tensor

    def wait(self) -> None:
        """Until all ranks have come here."""
        if not self.is_alone:
            torch.distributed.all_reduce(torch.zeros(1))

    def data_parallel(self, module: nn.Module) -> nn.Module:
        """The module with gradients that are averaged over the ranks while they are computed."""
        if self.is_alone:
            return module
        return nn.parallel.DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)

    def send(self, arrays: Sequence[NDArray[Any]], to: int) -> None:
        """Send some arrays; their number and kinds are for the receiver to know."""
        sizes = torch.tensor([array.nbytes for array in arrays])
        torch.distributed.send(sizes, to)
        for array in arrays:
            if array.nbytes:
                torch.distributed.send(torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8)), to)

    def receive(self, kinds: Sequence[np.dtype[Any]], source: int) -> list[NDArray[Any]]:
        """What ``send`` sent, each flat and of the given kind."""
        sizes = torch.zeros(len(kinds), dtype=torch.int64)
        torch.distributed.recv(sizes, source)
        arrays = []
        for kind, size in zip(kinds, sizes.tolist(), strict=True):
            content = torch.empty(size, dtype=torch.uint8)
            if size:
                torch.distributed.recv(content, source)
            arrays.append(content.numpy().view(kind))
        return arrays


ALONE = Ranks()


def launched() -> bool:
    """Whether ``torchrun`` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the others that ``torchrun`` started, or be alone where it did not.

    Raises:
        LostError: another process has ended before the work was done.
        UserError: what went wrong inside; of several ranks that fail, one alone tells.
    """
    if not launched():
        yield ALONE
        return
    from torch.distributed.rendezvous import rendezvous

    store, rank, world = next(rendezvous("env://"))
    use_gpu = torch.cuda.is_available()
    if use_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "cpu:gloo,cuda:nccl" if use_gpu else "gloo"
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    try:
        yield Ranks(rank, world)
    except UserError as error:
        # The first that fails says why; the others only notice that it is gone.
        raise error if store.add("failures", 1) == 1 else SilentError(str(error)) from error
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        sentence = f"Process {rank} of {world} cannot go on, because another one has ended; what is written is whole."
        raise LostError(sentence) if store.add("failures", 1) == 1 else SilentError(sentence) from error
    finally:
        torch.distributed.destroy_process_group()


def _is_loss(error: RuntimeError) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.distributed.DistError) or any(sign in text for sign in _SIGNS_OF_LOSS)
