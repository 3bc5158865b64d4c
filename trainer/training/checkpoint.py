"""Checkpoints, from which training resumes exactly. They contain no pickle.

A checkpoint is a folder that is written atomically. The previous one is kept, in case the disk damages the newest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mxd.trainer.config.layer import WEIGHTS_FILE
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import SparseLayer, read_weights, save_tensors
from mxd.trainer.layers.sharding import Shards
from mxd.trainer.storage.run import CHECKPOINT_PREFIX, checkpoints, step_of
from mxd.trainer.utils.files import atomic_directory, read_json

OPTIMIZER_FILE = "optimizer.safetensors"
POSITION_FILE = "position.json"
LAST_ACTIVE = "last_active_N"


@dataclass(frozen=True)
class Position:
    """Training progress."""

    step: int
    """Number of steps taken."""
    seconds: float
    """Training time over all resumptions."""


def save_checkpoint(
    folder: Path, layer: SparseLayer, moments: Mapping[str, Tensor], last_active_N: Tensor, position: Position
) -> None:
    """Write a checkpoint into the run folder, and delete all but it and the previous one.

    Layer and moments are unsharded, so any number of processes can resume the run.
    """
    target = folder / f"{CHECKPOINT_PREFIX}{position.step}"
    with atomic_directory(target) as partial:
        layer.save(partial)
        save_tensors({LAST_ACTIVE: last_active_N, **moments}, partial / OPTIMIZER_FILE)
        (partial / POSITION_FILE).write_text(json.dumps(asdict(position)))
    # A checkpoint of a later step is damaged: training was resumed from an earlier one.
    previous = [path for path in checkpoints(folder) if step_of(path) < position.step][:1]
    for checkpoint in checkpoints(folder):
        if checkpoint not in (target, *previous):
            shutil.rmtree(checkpoint)


def load_checkpoint(folder: Path, layer: SparseLayer, optimizer: torch.optim.Optimizer) -> tuple[Position, Tensor]:
    """Load a checkpoint into a layer and an optimizer.

    Returns:
        The position, and the token count at each expert's last activation, [N].

    Raises:
        UserError: a file is damaged.
    """
    with torch.device("meta"):
        unsharded = type(layer)(layer.config)
    weights = read_weights(folder / WEIGHTS_FILE, unsharded)
    layer.load_state_dict({name: _local(layer, name, value) for name, value in weights.items()})
    try:
        tensors = load_file(folder / OPTIMIZER_FILE)
        position = Position(**read_json(folder / POSITION_FILE))
        last_active_N = tensors.pop(LAST_ACTIVE)
        optimizer.load_state_dict(_unflatten(tensors, layer, optimizer))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"Damaged checkpoint: {folder} ({error}). Delete it and train the run again.") from error
    return position, last_active_N


def optimizer_moments(layer: SparseLayer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Unsharded optimizer state by parameter name. Sharded experts: collective, as ``SparseLayer.unsharded``."""
    moments = {}
    for name, parameter in layer.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            shards = _shards_of(layer, name, value)
            moments[f"{name}/{key}"] = shards.all_rows(value) if shards else value.contiguous()
    return moments


def _local(layer: SparseLayer, name: str, value: Tensor) -> Tensor:
    """This process's shard of an unsharded parameter or moment."""
    shards = _shards_of(layer, name, value)
    return shards.local_rows(value) if shards else value


def _shards_of(layer: SparseLayer, name: str, value: Tensor) -> Shards | None:
    """Shards of a parameter or moment; None if it is not sharded."""
    return layer.shards if name in layer.expert_tables and value.dim() > 0 else None


def _unflatten(tensors: dict[str, Tensor], layer: SparseLayer, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    indices = {name: index for index, (name, _) in enumerate(layer.named_parameters())}
    state: dict[int, dict[str, Tensor]] = {}
    for full_name, value in tensors.items():
        name, key = full_name.rsplit("/", 1)
        state.setdefault(indices[name], {})[key] = _local(layer, name, value)
    return {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
