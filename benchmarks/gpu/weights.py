"""A layer in training as a few small files: weights in bfloat16, and a summary of AdamW's second moments.

The second moment of a matrix is summarised by the means of its rows and columns (Adafactor, arXiv 1804.04235,
section 3). The first moment is left out: it is rebuilt within some ten steps, during which the steps are shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

MOST_BYTES = 15 << 20
"""Bytes of tensors in a file; the file stays below 16 MB with its header."""
WEIGHT, ROWS, COLUMNS, VALUES, STEP = "weight", "rows", "columns", "values", "step"


def compact(weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors to store, from a layer's weights and its optimizer's state (``PARAMETER/exp_avg_sq``, …)."""
    stored = {f"{name}/{WEIGHT}": value.to("cpu", torch.bfloat16) for name, value in weights.items()}
    for name in weights:
        if f"{name}/exp_avg_sq" not in moments:
            continue
        squares = moments[f"{name}/exp_avg_sq"].to("cpu", torch.float32)
        stored[f"{name}/{STEP}"] = moments[f"{name}/step"].to("cpu", torch.float32).reshape(1)
        if squares.dim() == 2:
            stored[f"{name}/{ROWS}"], stored[f"{name}/{COLUMNS}"] = squares.mean(dim=1), squares.mean(dim=0)
        else:
            stored[f"{name}/{VALUES}"] = squares
    return stored


def expand(stored: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and optimizer state in float32, from the tensors of ``compact``."""
    weights = {
        key.removesuffix(f"/{WEIGHT}"): value.float() for key, value in stored.items() if key.endswith(f"/{WEIGHT}")
    }
    moments: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if f"{name}/{STEP}" not in stored:
            continue
        moments[f"{name}/step"] = stored[f"{name}/{STEP}"][0]
        moments[f"{name}/exp_avg"] = torch.zeros_like(weight)
        moments[f"{name}/exp_avg_sq"] = _squares(name, stored)
    return weights, moments


def _squares(name: str, stored: Mapping[str, Tensor]) -> Tensor:
    if f"{name}/{VALUES}" in stored:
        return stored[f"{name}/{VALUES}"]
    rows, columns = stored[f"{name}/{ROWS}"], stored[f"{name}/{COLUMNS}"]
    return torch.outer(rows, columns) / rows.mean().clamp_min(torch.finfo(torch.float32).tiny)


def save_parts(tensors: Mapping[str, Tensor], folder: Path, name: str, most_bytes: int = MOST_BYTES) -> list[str]:
    """Write ``NAME-0.safetensors``, ``NAME-1.safetensors``, … of at most ``most_bytes`` each; returns their names.

    Matrices are split between rows. Files of an earlier call with the same name are replaced.
    """
    for path in folder.glob(f"{name}-*.safetensors"):
        path.unlink()
    part: dict[str, Tensor] = {}
    parts = [part]
    free = most_bytes
    for key, first, rows in _slices(tensors, most_bytes):
        if rows.nbytes > free:
            part, free = {}, most_bytes
            parts.append(part)
        part[f"{key}#{first}"] = rows.contiguous()
        free -= rows.nbytes
    names = [f"{name}-{number}.safetensors" for number in range(len(parts))]
    for file, content in zip(names, parts, strict=True):
        save_file(content, folder / file)
    return names


def _slices(tensors: Mapping[str, Tensor], most_bytes: int) -> Iterator[tuple[str, int, Tensor]]:
    """Each tensor in slices of rows small enough to fill files well."""
    for key, value in tensors.items():
        rows = max(1, most_bytes // 16 // max(1, value[0].nbytes))
        for first in range(0, len(value), rows):
            yield key, first, value[first : first + rows]


def load_parts(folder: Path, name: str) -> dict[str, Tensor]:
    """Read what ``save_parts`` wrote; empty if there are no files."""
    slices: dict[str, dict[int, Tensor]] = {}
    for path in sorted(folder.glob(f"{name}-*.safetensors")):
        for label, value in load_file(path).items():
            key, _, first = label.rpartition("#")
            slices.setdefault(key, {})[int(first)] = value
    return {key: torch.cat([found[first] for first in sorted(found)]) for key, found in slices.items()}
