"""Checkpoints: all that fitting needs to go on as if it had never stopped, without a pickle.

A checkpoint is a folder that appears whole under its final name or not at all. The one before is kept beside it, should
the disk lose a file of the newest.
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

from trainer.errors import UserError
from trainer.files import read_json, whole_folder
from trainer.layers.saved import WEIGHTS_FILE
from trainer.layers.sharded import Shards
from trainer.layers.sparse import SparseLayer, read_weights, save_tensors
from trainer.run import CHECKPOINT_PREFIX, checkpoints, step_of

OPTIMIZER_FILE = "optimizer.safetensors"
POSITION_FILE = "position.json"
LAST_ACTIVE = "last_active_N"


@dataclass(frozen=True)
class Position:
    """How far fitting has come."""

    step: int
    """Steps taken."""
    seconds: float
    """Spent fitting, over all resumptions."""


def save_checkpoint(
    folder: Path, layer: SparseLayer, moments: Mapping[str, Tensor], last_active_N: Tensor, position: Position
) -> None:
    """Write a checkpoint into the run directory ``folder``, and keep the one before it alone.

    Layer and moments are whole, whoever holds which experts: so a run can be taken up by any number of processes.
    """
    target = folder / f"{CHECKPOINT_PREFIX}{position.step}"
    with whole_folder(target) as partial:
        layer.save(partial)
        save_tensors({LAST_ACTIVE: last_active_N, **moments}, partial / OPTIMIZER_FILE)
        (partial / POSITION_FILE).write_text(json.dumps(asdict(position)))
    # One that is ahead is damaged: the run has come here again from before it.
    before = [path for path in checkpoints(folder) if step_of(path) < position.step][:1]
    for other in checkpoints(folder):
        if other not in (target, *before):
            shutil.rmtree(other)


def load_checkpoint(folder: Path, layer: SparseLayer, optimizer: torch.optim.Optimizer) -> tuple[Position, Tensor]:
    """Fill layer and optimiser from the checkpoint ``folder``; returns the position and when experts were last active.

    Raises:
        UserError: a file of it is damaged.
    """
    with torch.device("meta"):
        whole = type(layer)(layer.config)
    weights = read_weights(folder / WEIGHTS_FILE, whole)
    layer.load_state_dict({name: _part(layer, name, value) for name, value in weights.items()})
    try:
        tensors = load_file(folder / OPTIMIZER_FILE)
        position = Position(**read_json(folder / POSITION_FILE))
        last_active_N = tensors.pop(LAST_ACTIVE)
        optimizer.load_state_dict(_unflatten(tensors, layer, optimizer))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"The checkpoint {folder} is damaged ({error}); delete it and fit the run again.") from error
    return position, last_active_N


def moments_of(layer: SparseLayer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that an optimiser keeps, by name, of all experts; where they are spread over processes, all must ask."""
    found = {}
    for name, parameter in layer.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            shards = _shards_of(layer, name, value)
            found[f"{name}/{key}"] = shards.whole(value) if shards else value.contiguous()
    return found


def _part(layer: SparseLayer, name: str, value: Tensor) -> Tensor:
    """What this process holds of a whole tensor that belongs to a parameter."""
    shards = _shards_of(layer, name, value)
    return shards.part(value) if shards else value


def _shards_of(layer: SparseLayer, name: str, value: Tensor) -> Shards | None:
    """How a tensor that belongs to a parameter is spread over processes, if it is."""
    return layer.shards if name in layer.expert_tables and value.dim() > 0 else None


def _unflatten(tensors: dict[str, Tensor], layer: SparseLayer, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    places = {name: place for place, (name, _) in enumerate(layer.named_parameters())}
    state: dict[int, dict[str, Tensor]] = {}
    for full_name, value in tensors.items():
        name, key = full_name.rsplit("/", 1)
        state.setdefault(places[name], {})[key] = _part(layer, name, value)
    return {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
