"""Safetensors files of a layer and its optimizer: one of all rows, or one per process with that process's rows.

The files of several processes have the headers of ``torch.distributed.checkpoint``, whose HuggingFaceStorageReader
reads them. Here any number of processes read the rows that they need, and nothing is unpickled.

**Weights in 5 bits,** for layers that are shipped: one scale per 64 weights of a row. A file stores a matrix ``name``
as ``name.packed``, uint8 [R, 5C/8], and ``name.scale``, bfloat16 [R, C/64]. A weight w is the code
floor(w / scale) + 16, read as (code - 15.5) scale: never as zero, which would lower the rank of an expert. A packed row
holds the lower four bits of its codes, two codes per byte, then their highest bits. Vectors, and matrices whose width
is no multiple of 64, are unchanged.

Shapes: R rows, C columns, G groups of W = 64 columns, P packed bytes per row.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mxd.trainer.layers.ops import Shards

OFFSETS = "DCP_SHARDING_INFO"
"""Header entry of torch.distributed.checkpoint: name -> first row and column of the part in this file."""

_SYSTEM_ERROR = re.compile(r"os error (\d+)")
_SHARD_NAME = re.compile(r"\w+-\d+-of-(\d+)\.safetensors")


def parts_of(path: Path) -> list[Path]:
    """The file itself, or NAME-00001-of-00002.safetensors and so on if each process wrote one."""
    return sorted(path.parent.glob(f"{path.stem}-*-of-*.safetensors")) or [path]


def save_tensors(tensors: Mapping[str, Tensor], target: Path, header: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file. Raises OSError if the file cannot be written."""
    try:
        save_file(dict(tensors), target, None if header is None else dict(header))
    except SafetensorError as error:
        # The library reports a full disk only in the text of its general error.
        number = _SYSTEM_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), str(error)) from error


def save_part(tensors: Mapping[str, Tensor], tables: Collection[str], shards: Shards, path: Path) -> None:
    """Write this process's part of a file: its rows of the ``tables``; in the first process also all other tensors.
    Raises OSError if the file cannot be written."""
    own = {name: value for name, value in tensors.items() if name in tables or shards.rank == 0}
    first = shards.rows(shards.rank).start
    begins = {
        name: ([first if name in tables else 0] + [0] * value.dim())[: value.dim()] for name, value in own.items()
    }
    header = {OFFSETS: json.dumps({name: {"saved_offsets": begin} for name, begin in begins.items()}), "format": "pt"}
    target = path.with_stem(f"{path.stem}-{shards.rank + 1:05}-of-{shards.world_size:05}")
    save_tensors({name: value.detach().contiguous() for name, value in own.items()}, target, header)


def read_rows(path: Path, tables: Collection[str] = (), rows: slice = slice(None)) -> dict[str, Tensor]:
    """Read the tensors of a file or its parts, of the ``tables`` only these rows. Raises SafetensorError or OSError or
    ValueError: a file is damaged or missing."""
    with _opened_parts(path) as parts:
        return {name: _joined(name, parts[name], rows if name in tables else slice(None)) for name in parts}


def join_parts(path: Path, target: Path) -> None:
    """Write the tensors of a file's parts into one file. In memory there is never more than a tensor of a part. Raises
    SafetensorError or OSError or ValueError if a part is damaged or missing, or the file cannot be written."""
    with _opened_parts(path) as parts, target.open("wb") as joined:
        header: dict[str, dict[str, object]] = {}
        end = 0
        for name in sorted(parts):
            files = [part.file for part in sorted(parts[name], key=attrgetter("first"))]
            begin, shape = end, files[0].get_slice(name).get_shape()
            end += sum(file.get_tensor(name).nbytes for file in files)
            rows = [sum(file.get_slice(name).get_shape()[0] for file in files)] if shape else []
            dtype = files[0].get_slice(name).get_dtype()
            header[name] = {"dtype": dtype, "shape": [*rows, *shape[1:]], "data_offsets": [begin, end]}
        content = json.dumps(header, separators=(",", ":")).encode()
        content += b" " * (-len(content) % 8)
        joined.write(len(content).to_bytes(8, "little") + content)
        for name in sorted(parts):
            for part in sorted(parts[name], key=attrgetter("first")):
                with safe_open(part.path, framework="pt") as file:  # what was read stays in memory until it is closed
                    joined.write(file.get_tensor(name).numpy().data)


class _Part(NamedTuple):
    """Part of a tensor in an open file."""

    first: int
    """Index of its first row."""
    path: Path
    file: Any


@contextmanager
def _opened_parts(path: Path) -> Iterator[dict[str, list[_Part]]]:
    paths = parts_of(path)
    with ExitStack() as opened:
        parts: dict[str, list[_Part]] = defaultdict(list)
        for part in paths:
            named = _SHARD_NAME.fullmatch(part.name)
            if named is not None and int(named[1]) != len(paths):
                raise ValueError(f"only {len(paths)} of {int(named[1])} files exist")
            file = opened.enter_context(safe_open(part, framework="pt"))
            try:
                info = json.loads((file.metadata() or {}).get(OFFSETS, "{}"))
                # The first row of each part; empty for a file of whole tensors.
                begins = {key: int(it["saved_offsets"][0]) for key, it in info.items() if it["saved_offsets"]}
            except (AttributeError, KeyError, IndexError, TypeError, OverflowError, RecursionError) as error:
                raise ValueError(f"invalid {OFFSETS}") from error
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                parts[name].append(_Part(begins.get(name, 0), part, file))
        yield parts


def _joined(name: str, parts: list[_Part], rows: slice) -> Tensor:
    """Some rows of a tensor, from the parts that hold them. The parts must follow one another without a gap."""
    if len(parts) == 1 and parts[0].first == 0 and rows == slice(None):
        tensor: Tensor = parts[0].file.get_tensor(name)
        return tensor
    found, end = [], 0
    for first, _, file in sorted(parts, key=attrgetter("first")):
        part = file.get_slice(name)
        if first != end or not part.get_shape():
            raise ValueError(f"rows of {name} from {end:,} on are missing")
        end += part.get_shape()[0]
        start, stop, _ = rows.indices(end)
        if max(start, first) < stop:
            found.append(part[max(start, first) - first : stop - first])
    if not found:
        raise ValueError(f"rows of {name} are missing")
    return torch.cat(found) if len(found) > 1 else found[0].clone()


PACKED, SCALE = ".packed", ".scale"
GROUP = 64
LEVELS = 16
"""Number of codes for weights of one sign."""


def dequantize(packed_RP: Tensor, scale_RG: Tensor) -> Tensor:
    """Matrix [R, C] of a packed one, in float32."""
    columns = scale_RG.shape[1] * GROUP
    low_RP, high_RP = packed_RP.split((columns // 2, columns // 8), dim=1)
    high_RC = torch.from_numpy(np.unpackbits(high_RP.numpy(), axis=1))
    codes_RC = torch.stack((low_RP % LEVELS, low_RP // LEVELS), dim=2).flatten(1).add_(high_RC, alpha=LEVELS)
    weights_RC: Tensor = codes_RC.float().sub_(LEVELS - 0.5)
    return weights_RC.mul_(scale_RG.float().repeat_interleave(GROUP, dim=1))


def dequantized(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replace every quantised matrix by its float32 values. Other tensors are returned as they are."""
    values = dict(tensors)
    for packed_name in tensors:
        name = packed_name.removesuffix(PACKED)
        packed_RP, scale_RG = tensors[packed_name], tensors.get(name + SCALE)
        if name == packed_name or scale_RG is None:
            continue
        # A file may hold anything.
        if (packed_RP.dtype, packed_RP.ndim, scale_RG.ndim, scale_RG.is_floating_point()) == (torch.uint8, 2, 2, True):
            rows, groups = scale_RG.shape
            if packed_RP.shape == (rows, 5 * GROUP * groups // 8):
                values[name] = dequantize(values.pop(packed_name), values.pop(name + SCALE))
    return values
