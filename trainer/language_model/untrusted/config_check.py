"""Check of a language model's config before its modules are built: sizes must fit its weights.

A config may name a billion layers, or matrices that no weights fill. Reading it with transformers would already build
lists of that length, so the JSON is checked first.
"""

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

LARGEST_COUNT = 4096
"""Layers, heads, experts and classes of a model."""
LARGEST_NUMBER = 2**40
LARGEST_HEADER = 100 << 20
SLACK = 2
"""Parameters of the modules per parameter in the files: tied weights are stored once."""
SMALL = 1 << 20
"""Parameters that a model may have whatever its files hold."""
_COUNT = re.compile(r"^(n|num|.*_num)_.*(layers?|blocks?|experts?|heads?|labels|groups|stages)$|^n_(layer|head)$")
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16}


class BadConfigError(ValueError):
    """The config describes something else than the weights, or than any model."""


@dataclass(frozen=True)
class StoredWeights:
    """Sizes in the headers of a folder's safetensors files."""

    tensors: int
    parameters: int
    """Number of values; of quantised ones, as many as four bits each can hold."""


def check_config_values(values: object, depth: int = 0) -> None:
    """Check the numbers in a config's JSON. Raises BadConfigError if a count of layers, heads, experts or classes is
    out of range."""
    if depth > 20:
        raise BadConfigError("config.json is nested too deeply")
    if isinstance(values, Mapping):
        for name, value in values.items():
            largest = LARGEST_COUNT if _COUNT.match(str(name)) else LARGEST_NUMBER
            if type(value) is int and abs(value) > largest:
                raise BadConfigError(f"config.json has {name} = {value:,}, more than {largest:,}")
            check_config_values(value, depth + 1)
    elif isinstance(values, list):
        for value in values:
            check_config_values(value, depth + 1)


def check_sizes(layers: int, outline: Callable[[], nn.Module], stored: StoredWeights) -> None:
    """Check that the weights have at least one tensor per layer, and that the modules of the config, built on the meta
    device, are not larger than the weights. Raises BadConfigError if not."""
    if layers > stored.tensors:
        raise BadConfigError(
            f"config.json describes {layers:,} layers, but the weights hold {stored.tensors:,} tensors"
        )
    module = outline()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    buffers = sum(buffer.numel() for buffer in module.buffers())
    largest = max(parameters, buffers)
    if largest > max(SMALL, SLACK * stored.parameters):
        raise BadConfigError(
            f"config.json describes {largest:,} parameters, but the weights hold {stored.parameters:,}"
        )


def stored_weights(folder: Path) -> StoredWeights | None:
    """Return the sizes of the safetensors files in a folder; None if there are none. Raises BadConfigError if a header
    cannot be read."""
    tensors = [tensor for path in sorted(folder.glob("*.safetensors")) for tensor in _tensors(path)]
    sizes = [(tensor["data_offsets"], _BITS.get(str(tensor["dtype"]), 4)) for tensor in tensors]
    return (
        StoredWeights(len(tensors), sum((end - start) * 8 // bits for (start, end), bits in sizes)) if sizes else None
    )


def _tensors(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, LARGEST_HEADER)))
        yield from (header[name] for name in header if name != "__metadata__")
    except (OSError, ValueError, struct.error, RecursionError, TypeError) as error:
        raise BadConfigError(f"the header of {path.name} cannot be read") from error
