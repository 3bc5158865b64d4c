"""A class for SAELens that holds any layer of ours. Importing this module registers it as architecture ``mxd``.

    import mxd.trainer.storage.formats.saelens_layer
    from sae_lens import SAE

    layer = SAE.load_from_disk("folder-of-mxd-export")

An expert of a mixture of decoders is a matrix, so its output depends on the input: call the layer, or ``decode`` with
the input that was encoded. SAELens is not a dependency of this package.

Shapes: … any batch dimensions, I input width, O output width, N experts.
"""

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from sae_lens import SAE, SAEConfig, register_sae_class
from sae_lens.util import filter_valid_dataclass_fields
from torch import Tensor

from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.layers.mxd import routing_of
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.storage.formats.transcoders import ARCHITECTURE


@dataclass
class MxDConfig(SAEConfig):  # type: ignore[misc]
    d_out: int = 0
    layer: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def architecture(cls) -> str:
        return ARCHITECTURE


class MxDLayer(SAE):  # type: ignore[misc]
    cfg: MxDConfig

    def initialize_weights(self) -> None:
        with torch.device(self.cfg.device):
            self.layer = build_layer(LayerConfig.model_validate(self.cfg.layer))

    @property
    def d_out(self) -> int:
        return self.cfg.d_out

    def encode(self, x: Tensor) -> Tensor:
        """Gate activations of all experts, [… N]; 0 for inactive ones."""
        x_TI = self.process_sae_in(x).reshape(-1, x.shape[-1])
        routing = self.layer.route(x_TI)
        activations_TN = x_TI.new_zeros(len(x_TI), self.cfg.d_sae)
        activations_TN = activations_TN.scatter_add(1, routing.indices_TK, routing.activations_TK)
        acts: Tensor = self.hook_sae_acts_post(activations_TN.reshape(*x.shape[:-1], -1))
        return acts

    def decode(self, feature_acts: Tensor, x: Tensor | None = None) -> Tensor:
        """Output for gate activations and the input that they were computed from, [… O]. Raises ValueError if the
        experts need the input, and it is missing."""
        if x is None:
            raise ValueError("The output of an expert depends on the layer's input. Call decode(feature_acts, x).")
        dense_TM = self.layer.dense_output(x.reshape(-1, x.shape[-1]).to(self.dtype))
        output_TO = self.layer.decode(dense_TM, routing_of(feature_acts.reshape(-1, feature_acts.shape[-1])))
        output: Tensor = self.hook_sae_recons(output_TO.reshape(*x.shape[:-1], -1))
        return output

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x), x)

    def process_sae_in(self, sae_in: Tensor) -> Tensor:
        """Convert the input's dtype and run the hook on it."""
        hooked: Tensor = self.hook_sae_input(sae_in.to(self.dtype))
        return hooked

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> Self:
        return cls(MxDConfig(**filter_valid_dataclass_fields(config_dict, MxDConfig)))


register_sae_class(ARCHITECTURE, MxDLayer, MxDConfig)
