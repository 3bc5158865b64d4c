"""Float32 weights for the time of a computation whose differences bfloat16 would round away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.utils.devices import device_memory

HALVES = (torch.bfloat16, torch.float16)
ROOM = 1.2
"""Free memory that the larger weights need, relative to their size."""


@contextmanager
def float32_weights(language_model: LanguageModel) -> Iterator[bool]:
    """Put float32 copies in the place of half-precision weights inside the context.

    Yields False, and changes nothing, if an accelerator has no room, or if some weights are kept outside its memory.
    Other threads must not use the model meanwhile.
    """
    owners = [
        (module, name, weight)
        for module in language_model.module.modules()
        for name, weight in module._parameters.items()
        if weight is not None and weight.dtype in HALVES
    ]
    halves = {id(weight): weight for _, _, weight in owners}  # tied weights once
    if not _fit(list(halves.values())):
        yield False
        return
    wide = {key: nn.Parameter(weight.detach().float(), requires_grad=False) for key, weight in halves.items()}
    with ExitStack() as stack:
        for module, name, weight in owners:
            stack.callback(module._parameters.__setitem__, name, weight)
            module._parameters[name] = wide[id(weight)]
        yield True


def _fit(halves: list[nn.Parameter]) -> bool:
    needed: dict[torch.device, int] = {}
    for parameter in halves:
        needed[parameter.device] = needed.get(parameter.device, 0) + 2 * parameter.nbytes
    if any(device.type == "meta" for device in needed):
        return False
    memories = ((device_memory(device), size) for device, size in needed.items())
    return all(memory is None or memory.free > ROOM * size for memory, size in memories)
