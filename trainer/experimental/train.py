"""Training with the diversity penalty."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.experimental import ExperimentalConfig, ExperimentalTrainConfig
from mxd.trainer.experimental.diversity import output_similarity
from mxd.trainer.layers.base import Routing
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.train import train_layers


class ExperimentalLayerTrainer(LayerTrainer):
    """``LayerTrainer`` with the experimental settings of an ``ExperimentalTrainConfig``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.experimental = check_experimental(self.config, self.group.is_single)

    def auxiliary_loss(self, routing: Routing) -> Tensor | None:
        terms = [super().auxiliary_loss(routing)]
        if self.experimental.diversity_weight:
            terms.append(self.experimental.diversity_weight * output_similarity(routing, self.layer.table))
        present = [term for term in terms if term is not None]
        return torch.stack(present).sum() if present else None


def check_experimental(config: TrainConfig, is_single_process: bool) -> ExperimentalConfig:
    """Experimental settings of a run; the defaults if it has none.

    Raises:
        UserError: the method, the gate or several processes do not support them.
    """
    settings = config.experimental if isinstance(config, ExperimentalTrainConfig) else ExperimentalConfig()
    if settings == ExperimentalConfig():
        return settings
    if not is_single_process:
        raise UserError("The diversity penalty needs all experts in one process. Run without torchrun.")
    if config.method == "molt":
        raise UserError("A molt has no expert rows to compare. Omit --diversity-weight.")
    return settings


train_experimental = partial(train_layers, trainer_class=ExperimentalLayerTrainer)
"""``train_layers`` with the experimental settings of the configs."""
