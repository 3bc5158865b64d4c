"""Training with the diversity penalty: experts of a batch should write different outputs.

Shapes: N experts, C compared experts, O output width.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.experimental import ExperimentalConfig, ExperimentalTrainConfig
from mxd.trainer.layers.base import Routing
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.train import train_layers

MAX_COMPARED = 512
"""Number of experts whose rows are compared in one step."""


def output_similarity(routing: Routing, table_NO: Tensor) -> Tensor:
    """Mean squared cosine similarity between the outputs of different experts of the batch; 1 if all are equal."""
    ids_C, is_used_C = _used_experts(routing, len(table_NO))
    rows_CO = F.normalize(table_NO[ids_C], dim=1) * is_used_C.unsqueeze(1)
    cosines_CC = rows_CO @ rows_CO.T
    count = is_used_C.sum()
    pairs = (count * (count - 1)).clamp_min(1)
    return (cosines_CC.square().sum() - cosines_CC.diagonal().square().sum()) / pairs


def _used_experts(routing: Routing, num_experts: int) -> tuple[Tensor, Tensor]:
    """Ids of ``MAX_COMPARED`` experts, evenly spaced over those of the batch, [C], and 1 for each valid entry.

    The size is fixed, so that nothing waits for the device to count the experts of the batch.
    """
    is_used_N = routing.indices_TK.new_zeros(num_experts).index_fill_(0, routing.indices_TK.reshape(-1), 1)
    used_first_N = is_used_N.argsort(descending=True, stable=True)
    count = is_used_N.sum()
    positions_C = torch.arange(MAX_COMPARED, device=count.device) * (count // MAX_COMPARED).clamp_min(1)
    is_valid_C = (positions_C < count).to(routing.activations_TK.dtype)
    return used_first_N[positions_C.clamp_max(num_experts - 1)], is_valid_C


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
