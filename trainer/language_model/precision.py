"""Float32 weights for the time of a computation whose differences bfloat16 would round away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.utils.devices import device_memory

HALVES = (torch.bfloat16, torch.float16)
ROOM = 1.2
"""Free memory that the larger weights need, relative to their size."""


@contextmanager
def float32_weights(language_model: LanguageModel) -> Iterator[bool]:
    """Convert half-precision weights to float32 inside the context, and back exactly on exit.

    Yields False, and converts nothing, if an accelerator has no room, or if some weights are kept outside its memory.
    Other threads must not use the model meanwhile.
    """
    halves = [parameter for parameter in language_model.module.parameters() if parameter.dtype in HALVES]
    dtypes = [parameter.dtype for parameter in halves]
    if not _fit(halves):
        yield False
        return
    try:
        for parameter in halves:
            parameter.data = parameter.data.float()
        yield True
    finally:
        for parameter, dtype in zip(halves, dtypes, strict=True):
            parameter.data = parameter.data.to(dtype)


def _fit(halves: list[torch.nn.Parameter]) -> bool:
    needed: dict[torch.device, int] = {}
    for parameter in halves:
        needed[parameter.device] = needed.get(parameter.device, 0) + 2 * parameter.nbytes
    if any(device.type == "meta" for device in needed):
        return False
    memories = ((device_memory(device), size) for device, size in needed.items())
    return all(memory is None or memory.free > ROOM * size for memory, size in memories)
