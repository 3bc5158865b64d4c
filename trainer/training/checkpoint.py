"""Checkpoints, from which training resumes exactly. They contain no pickle.

A checkpoint is a folder that is written atomically. The previous one is kept, in case the disk damages the newest.
"""

import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from mxd.trainer.config.base import Config
from mxd.trainer.config.layer import WEIGHTS_FILE
from mxd.trainer.data.sequences import TEXT_START, TextPosition
from mxd.trainer.layers.mxd import SparseLayer, read_weights
from mxd.trainer.layers.tensor_files import read_rows, save_part, save_tensors
from mxd.trainer.storage.run import CHECKPOINT_PREFIX, checkpoints, step_of
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup
from mxd.trainer.utils.files import atomic_directory, disk_errors, explained, partial_folder, read_json

OPTIMIZER_FILE = "optimizer.safetensors"
POSITION_FILE = "position.json"
LAST_ACTIVE = "last_active_N"


class Position(Config):
    step: int
    seconds: float
    """Training time over all resumptions."""
    text: TextPosition = TEXT_START
    """Position in the text at or before the next step's first sequence."""


def save_checkpoint(
    folder: Path,
    layer: SparseLayer,
    optimizer: torch.optim.Optimizer,
    last_active_N: Tensor,
    position: Position,
    group: ProcessGroup = SINGLE_PROCESS,
) -> None:
    """Write a checkpoint into the run folder, and delete all but it and the previous one. Collective. The main process
    writes everything but the rows of sharded experts and their moments, which each process writes itself. Any number of
    processes can resume the run."""
    if layer.shards is None and not group.is_main:
        return
    target = folder / f"{CHECKPOINT_PREFIX}{position.step}"
    partial = partial_folder(target)
    moments = {
        f"{name}/{key}": value.contiguous()
        for name, parameter in layer.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    tensors = {LAST_ACTIVE: last_active_N, **moments}
    with atomic_directory(target) if group.is_main else disk_errors(target):
        if layer.shards is None:
            layer.save(partial)
            save_tensors(tensors, partial / OPTIMIZER_FILE)
        else:
            group.barrier()  # the folder exists
            layer.save(partial)
            save_part(tensors, _table_moments(layer), layer.shards, partial / OPTIMIZER_FILE)
            group.barrier()  # all parts exist
        if not group.is_main:
            return
        (partial / POSITION_FILE).write_text(position.model_dump_json())
    # A checkpoint of a later step is damaged: training was resumed from an earlier one.
    previous = [path for path in checkpoints(folder) if step_of(path) < position.step][:1]
    for checkpoint in checkpoints(folder):
        if checkpoint not in (target, *previous):
            shutil.rmtree(checkpoint)


def load_checkpoint(folder: Path, layer: SparseLayer, optimizer: torch.optim.Optimizer) -> tuple[Position, Tensor]:
    """Load a checkpoint into a layer and an optimizer. A process that holds some experts reads only their rows.

    Returns:
        The position, and the token count at each expert's last activation, [N].

    Raises:
        UserError: a file is damaged or missing.
    """
    rows = slice(None) if layer.shards is None else layer.shards.rows(layer.shards.rank)
    weights = read_weights(folder / WEIGHTS_FILE, layer, layer.expert_tables, rows)
    message = f"Damaged checkpoint: {folder} ({{error}}). Delete it and train the run again."
    with explained(message, SafetensorError, OSError, KeyError, TypeError, ValueError):
        tensors = read_rows(folder / OPTIMIZER_FILE, _table_moments(layer), rows)
        position = Position.model_validate(read_json(folder / POSITION_FILE))
        last_active_N = tensors.pop(LAST_ACTIVE)
        layer.load_state_dict(weights)
        parameters = {name: (index, value.shape) for index, (name, value) in enumerate(layer.named_parameters())}
        state: dict[int, dict[str, Tensor]] = {}
        for full_name, value in tensors.items():
            name, key = full_name.rsplit("/", 1)
            index, shape = parameters[name]
            if value.dim() and value.shape != shape:
                raise ValueError(f"{full_name} has another shape")
            state.setdefault(index, {})[key] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return position, last_active_N


def _table_moments(layer: SparseLayer) -> list[str]:
    return [f"{name}/{moment}" for name in layer.expert_tables for moment in ("exp_avg", "exp_avg_sq")]
