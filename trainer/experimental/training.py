"""Training with penalties, or as a sanity control of the trained parts.

- The diversity penalty asks experts of a batch to write different outputs.
- The penalty on the best constant asks hidden units that no constant mixing of them explains the MLP's output.
- Controls show what training buys. Frozen parts keep their first weights, as in arXiv 2602.14111. Gaussian inputs have
  the mean and covariance of the text's inputs and nothing else of it, as in arXiv 2512.18452.

Shapes: T tokens, I input width, H hidden width, O output width, N experts, C compared experts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.config.layer import method_traits
from mxd.trainer.config.training import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.experimental import ExperimentalConfig, ExperimentalTrainConfig
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.mxd import ACTIVATIONS, SMALLEST_NORM, LayerOutput, Routing
from mxd.trainer.training.initialization import loss_weights, needs_sample
from mxd.trainer.training.layer_trainer import ONE_PROCESS, LayerTrainer, Placement
from mxd.trainer.training.train import train_layers

MAX_COMPARED = 512
"""Number of experts whose rows are compared in one step."""


def output_similarity(routing: Routing, table_NO: Tensor) -> Tensor:
    """Mean squared cosine similarity between the outputs of different experts of the batch; 1 if all are equal."""
    is_used_N = routing.indices_TK.new_zeros(len(table_NO)).index_fill_(0, routing.indices_TK.reshape(-1), 1)
    used_first_N, used = is_used_N.argsort(descending=True, stable=True), is_used_N.sum()
    # Evenly spaced over the experts of the batch, and of a fixed size, so that nothing waits for the device to count.
    positions_C = torch.arange(MAX_COMPARED, device=used.device) * (used // MAX_COMPARED).clamp_min(1)
    is_used_C = (positions_C < used).to(routing.activations_TK.dtype)
    rows_CO = F.normalize(table_NO[used_first_N[positions_C.clamp_max(len(table_NO) - 1)]], dim=1)
    rows_CO = rows_CO * is_used_C.unsqueeze(1)
    cosines_CC = rows_CO @ rows_CO.T
    count = is_used_C.sum()
    pairs = (count * (count - 1)).clamp_min(1)
    return (cosines_CC.square().sum() - cosines_CC.diagonal().square().sum()) / pairs


RIDGE = 1e-4
"""Added to the diagonal of the normal equations of the best constant, relative to its mean."""


def constant_share(hidden_TH: Tensor, decoder_OH: Tensor, target_TO: Tensor) -> Tensor:
    """Share of the target's variance that the best constant mixing m explains, (z * m) D; weighted as the loss.

    The constant is a solution of the normal equations, which is an optimum. So its derivative does not matter.
    """
    weight_T1 = loss_weights(target_TO)
    hidden_TH = hidden_TH - (weight_T1 * hidden_TH).sum(dim=0)
    target_TO = target_TO - (weight_T1 * target_TO).sum(dim=0)
    with torch.no_grad():
        weighted_TH = weight_T1 * hidden_TH
        products_HH = (weighted_TH.T @ hidden_TH) * (decoder_OH.T @ decoder_OH)
        products_HH.diagonal().add_(RIDGE * products_HH.diagonal().mean() + SMALLEST_NORM)
        constant_H = torch.linalg.solve(products_HH, (weighted_TH * (target_TO @ decoder_OH)).sum(dim=0))
    error_TO = target_TO - (hidden_TH * constant_H) @ decoder_OH.T
    share: Tensor = 1 - (weight_T1 * error_TO.square()).sum() / (weight_T1 * target_TO.square()).sum()
    return share


@dataclass(frozen=True)
class GaussianInputs:
    """Gaussian inputs of an MLP, with the mean and covariance of its inputs on a text, and its outputs on them."""

    mean_I: Tensor
    root_II: Tensor
    """Square root of the covariance, symmetric."""
    mlp: Callable[[Tensor], Tensor]
    """Maps inputs [T, I] to the original MLP's outputs [T, O]."""

    @classmethod
    @torch.no_grad()
    def like(cls, sample_TI: Tensor, language_model: LanguageModel, layer: int) -> Self:
        """Inputs with the moments of a sample, which has more rows than entries per row."""
        mean_I = sample_TI.mean(dim=0)
        values_I, vectors_II = torch.linalg.eigh(torch.cov(sample_TI.T.double()))
        root_II = (vectors_II * values_I.clamp_min(0).sqrt()) @ vectors_II.T
        return cls(mean_I, root_II.to(sample_TI), original_mlp(language_model, layer))

    def sample(self, tokens: int, seed: int, step: int) -> MlpActivations:
        """Inputs and outputs of some tokens; they depend only on the seed and the step."""
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, step + 1]).generate_state(1)[0]))
        noise_TI = torch.randn(tokens, len(self.mean_I), generator=generator).to(self.mean_I)
        input_TI = self.mean_I + noise_TI @ self.root_II
        return MlpActivations(input_TI, self.mlp(input_TI))


def original_mlp(language_model: LanguageModel, layer: int) -> Callable[[Tensor], Tensor]:
    """The MLP of a layer as a function of inputs in float32, [T, I] to [T, O]."""
    weights, down = language_model.architecture.encoder_weights(layer), language_model.down_projection(layer)
    activation = ACTIVATIONS[language_model.architecture.mlp_shape(layer).activation]

    @torch.no_grad()
    def outputs(x_TI: Tensor) -> Tensor:
        hidden_TH = F.linear(x_TI, weights.weight_HI.to(x_TI), weights.bias_H.to(x_TI))
        if weights.gate_weight_HI is None or weights.gate_bias_H is None:
            hidden_TH = activation(hidden_TH)
        else:
            hidden_TH *= activation(F.linear(x_TI, weights.gate_weight_HI.to(x_TI), weights.gate_bias_H.to(x_TI)))
        output_TO: Tensor = down(hidden_TH.to(language_model.dtype))
        return output_TO.float()

    return outputs


FIRST_SAMPLE = -1
"""Step of the Gaussian sample from which a layer is initialised."""


class ExperimentalLayerTrainer(LayerTrainer):
    """``LayerTrainer`` with the experimental settings of an ``ExperimentalTrainConfig``."""

    inputs: GaussianInputs | None = None
    """Inputs instead of the text's; None for those."""

    def __post_init__(self) -> None:
        self.experimental = check_experimental(self.config, self.group.is_single)
        frozen = list(self.layer.gate.parameters()) if self.experimental.freeze in ("gate", "both") else []
        if self.experimental.freeze in ("table", "both"):
            if not isinstance(self.layer.table, nn.Parameter):
                raise UserError(f"A {self.layer.method} has no table of experts to freeze. Use --freeze=gate.")
            frozen.append(self.layer.table)
        for parameter in frozen:
            parameter.requires_grad_(False)  # the optimizer skips parameters without a gradient
        super().__post_init__()

    @classmethod
    def create(
        cls,
        config: TrainConfig,
        language_model: LanguageModel,
        total_steps: int,
        placement: Placement = ONE_PROCESS,
        sample: MlpActivations | None = None,
    ) -> Self:
        inputs = None
        if check_experimental(config, placement.group.is_single).inputs == "gaussian":
            assert sample is not None  # check_experimental
            inputs = GaussianInputs.like(sample.input_TI, language_model, config.layer)
            sample = inputs.sample(len(sample.input_TI), config.seed, FIRST_SAMPLE)
        trainer = super().create(config, language_model, total_steps, placement, sample)
        trainer.inputs = inputs
        return trainer

    def train_step(self, batch: MlpActivations) -> LayerOutput:
        if self.inputs is not None:
            batch = self.inputs.sample(len(batch.input_TI), self.config.order_seed, self.step)
        return super().train_step(batch)

    def auxiliary_loss(self, output: LayerOutput, target_TO: Tensor) -> Tensor | None:
        terms = [super().auxiliary_loss(output, target_TO)]
        if self.experimental.diversity_weight:
            terms.append(self.experimental.diversity_weight * output_similarity(output.routing, self.layer.table))
        if self.experimental.constant_weight:
            decoder_OH = self.layer.get_parameter("decoder.weight")
            terms.append(self.experimental.constant_weight * constant_share(output.dense_TM, decoder_OH, target_TO))
        present = [term for term in terms if term is not None]
        return torch.stack(present).sum() if present else None


def check_experimental(config: TrainConfig, is_single_process: bool) -> ExperimentalConfig:
    """Experimental settings of a run; the defaults if it has none. Raises UserError if the method, the initialisation
    or several processes do not support them."""
    settings = config.experimental if isinstance(config, ExperimentalTrainConfig) else ExperimentalConfig()
    if settings == ExperimentalConfig():
        return settings
    if not is_single_process:
        raise UserError("Experimental settings need all experts in one process. Run without torchrun.")
    if settings.inputs == "gaussian" and not needs_sample(config):
        raise UserError("--inputs=gaussian needs a sample of the text. Use --init=examples.")
    if settings.diversity_weight and config.method == "molt":
        raise UserError("A molt has no expert rows to compare. Omit --diversity-weight.")
    if settings.constant_weight and not method_traits(config.method).mixes_hidden:
        raise UserError(
            f"A {config.method} does not mix hidden units. Omit --constant-weight, or use --method=hidden-mxd."
        )
    return settings


train_experimental = partial(train_layers, trainer_class=ExperimentalLayerTrainer)
"""``train_layers`` with the experimental settings of the configs."""
