"""Training with the diversity penalty and with revival of dead experts.

Shapes: N experts.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from mxd.trainer.config import TrainConfig
from mxd.trainer.config.methods import method_traits
from mxd.trainer.errors import UserError
from mxd.trainer.experimental import ExperimentalConfig, ExperimentalTrainConfig
from mxd.trainer.experimental.diversity import output_similarity
from mxd.trainer.experimental.revival import revive
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.base import LayerOutput, Routing
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

    def train_step(self, batch: MlpActivations) -> LayerOutput:
        output = super().train_step(batch)
        self._revive(batch, output)
        return output

    def _revive(self, batch: MlpActivations, output: LayerOutput) -> None:
        """Revive dead experts every ``revive_after`` tokens, except while the learning rate decays."""
        limit = self.experimental.revive_after
        decay_start = (1 - self.config.optimizer.decay_ratio) * self.total_steps
        if limit is None or self.step > decay_start or self.step % max(1, limit // len(batch.input_TI)):
            return
        is_dead_N = self.tokens - self.last_active_N >= limit
        revive(self.layer, self.optimizer, is_dead_N, batch.inputs_for(self.layer), output, batch.output_TO)
        self.last_active_N.masked_fill_(is_dead_N, self.tokens)


def check_experimental(config: TrainConfig, is_single_process: bool) -> ExperimentalConfig:
    """Experimental settings of a run; the defaults if it has none.

    Raises:
        UserError: the method, the gate or several processes do not support them.
    """
    settings = config.experimental if isinstance(config, ExperimentalTrainConfig) else ExperimentalConfig()
    if settings == ExperimentalConfig():
        return settings
    if not is_single_process:
        raise UserError("The diversity penalty and revival need all experts in one process. Run without torchrun.")
    if config.method == "molt":
        raise UserError("A molt has no expert rows to compare or revive. Omit --diversity-weight and --revive-after.")
    if settings.revive_after is not None and config.gate.gate != "flat":
        raise UserError(f"Revival needs a flat gate, not {config.gate.gate}. Omit --revive-after.")
    if settings.revive_after is not None and not method_traits(config.method).has_top_k:
        raise UserError(f"Revival needs a top-k, which a {config.method} does not have. Omit --revive-after.")
    return settings


train_experimental = partial(train_layers, trainer_class=ExperimentalLayerTrainer)
"""``train_layers`` with the experimental settings of the configs."""
