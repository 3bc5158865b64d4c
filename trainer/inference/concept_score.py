"""Concept measures of generated texts: how much of a text an expert fires on, and how much of it the expert promotes.

Shapes: B texts, T tokens, P = B * T, K active experts, I input width, O output width, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import single_texts
from mxd.trainer.layers.base import Routing
from mxd.trainer.storage.run import Run

NUM_PROMOTED = 20
TEXTS_PER_BATCH = 16
"""Texts that one forward pass reads."""
TokenIds = tuple[int, ...]


@dataclass(frozen=True)
class Concept:
    """One expert after a prompt, as a scale for texts that continue the prompt."""

    language_model: LanguageModel
    run: Run
    expert: int
    unit: float
    """99th percentile of the expert's gate activation."""
    prompt: Sequence[int]
    """Token ids of the prompt, with the start token."""

    @torch.inference_mode()
    def mean_activations(self, texts: Sequence[TokenIds]) -> dict[TokenIds, float]:
        """Mean gate activation, in units, with which the original model reads the new tokens of each text."""
        means: dict[TokenIds, float] = {}
        distinct = [text for text in dict.fromkeys(texts) if text]
        for start in range(0, len(distinct), TEXTS_PER_BATCH):
            group = distinct[start : start + TEXTS_PER_BATCH]
            width = max(map(len, group))
            # Padding on the right does not change the tokens before it.
            ids_BT = torch.tensor([[*self.prompt, *text, *[0] * (width - len(text))] for text in group])
            activations_BT = self._activations(ids_BT)[:, len(self.prompt) :]
            for text, activations_T in zip(group, activations_BT, strict=True):
                means[text] = activations_T[: len(text)].mean().item() / self.unit
        return means

    def _activations(self, ids_BT: Tensor) -> Tensor:
        """Gate activation of the expert on each token, [B, T]."""
        layer = self.run.config.layer
        x_PI = self.language_model.capture(layer, ids_BT).inputs_for(self.run.layer).float()
        routing = self.run.layer.to(x_PI.device).route(x_PI)
        own_PK = routing.coefficients_TK * (routing.indices_TK == self.expert)
        return own_PK.sum(dim=-1).reshape(ids_BT.shape)

    @torch.no_grad()
    def promoted_tokens(self) -> dict[int, str]:
        """Tokens (id -> text) that one unit of the expert alone makes more probable, strongest first.

        Adds what the block adds because of the contribution on the prompt's last token to the residual stream after
        the last block, then unembeds it.
        """
        inputs: list[Tensor] = []

        def watch(x_1TI: Tensor, mlp: Mlp) -> Tensor:
            output_1TO = mlp()
            read_1TI = output_1TO if self.run.layer.reads == "mlp-output" else x_1TI
            inputs.append(read_1TI[0, -1:].float())
            return output_1TO

        layer, additions = self.run.config.layer, self.language_model.additions
        with self.language_model.replace_mlps({layer: watch}):
            residual_1W = self.language_model.residual(torch.tensor([list(self.prompt)]))[0, -1:]
        (x_1I,) = inputs
        routing = Routing(x_1I.new_full((1, 1), self.unit), torch.tensor([[self.expert]], device=x_1I.device))
        sparse_layer = self.run.layer.to(x_1I.device)
        output_1O = sparse_layer.contribution(sparse_layer.dense_output(x_1I), routing)
        # Taken away from the MLP's output, and the sign turned: what the block adds because of one more unit.
        added_1W = -additions.of_vectors(layer, self.prompt, [len(self.prompt) - 1], -output_1O)
        passed_1W = added_1W * additions.passed_on(layer)
        residual_1W = residual_1W.to(passed_1W)  # not rounded to the language model's dtype
        residual_2W = torch.cat([residual_1W, residual_1W + passed_1W])
        without_V, with_V = self.language_model.unembed(residual_2W).log_softmax(dim=-1)
        top: list[int] = (with_V - without_V).topk(min(NUM_PROMOTED, len(with_V))).indices.tolist()
        texts = single_texts(self.language_model, set(top))
        return {token: texts[token] for token in top}
