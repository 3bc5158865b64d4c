"""Routing of a text: the active experts of each token.

Shapes: T tokens, I input width, M width of the dense output, K active experts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mxd.trainer.inference.results import RoutedExpert, RoutedToken, Routing
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.layers.base import Routing as LayerRouting
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import text_ids


def route(language_model: LanguageModel, run: Run, text: str, k: int | None = None) -> Routing:
    """Route a text. The language model is computed only up to the layer.

    Args:
        language_model: the language model of the run.
        run: the run whose layer routes the text.
        text: the text to route.
        k: active experts per token; by default the run's K.

    Raises:
        TooLongError: the text exceeds the language model's context length.
        UserError: the text is empty, the run belongs to another language model, or has no such K.
    """
    return route_together(language_model, [run], text, k)[0]


@torch.inference_mode()
def route_together(
    language_model: LanguageModel, runs: Sequence[Run], text: str, k: int | None = None
) -> tuple[Routing, ...]:
    """Route a text through runs of several layers in one forward pass; return one routing per run.

    Every layer reads the activations of the original model, as when it is routed alone. ``k`` applies to all runs.

    Raises:
        TooLongError: as ``route``.
        UserError: as ``route``, or two runs have the same layer.
    """
    ids = text_ids(language_model, runs, text)
    layers = [run.at_k(k) for run in runs]
    texts = token_texts(language_model.tokenizer, ids)
    inputs = language_model.mlp_inputs([run.config.layer for run in runs], torch.tensor([ids]))
    routings = []
    for run, sparse_layer in zip(runs, layers, strict=True):
        sparse_layer.to(language_model.device_of(run.config.layer))
        x_TI = inputs[run.config.layer].float()
        experts = routed_experts(sparse_layer, sparse_layer.dense_output(x_TI), sparse_layer.route(x_TI))
        tokens = tuple(RoutedToken(ids[i], texts[i], i == 0, experts[i]) for i in range(len(ids)))
        routings.append(Routing(run.name, tokens))
    return tuple(routings)


def routed_experts(
    sparse_layer: SparseLayer, dense_TM: Tensor, routing: LayerRouting
) -> list[tuple[RoutedExpert, ...]]:
    """For each token its active experts in descending order of coefficient, with their shares of the output norm."""
    norms_TK = sparse_layer.contribution_norms(dense_TM, routing)
    shares_TK = norms_TK / norms_TK.sum(dim=1, keepdim=True).clamp_min(1e-12)
    values_2TK = torch.stack((routing.coefficients_TK.to(shares_TK), shares_TK)).tolist()  # one wait for both
    rows = zip(routing.indices_TK.tolist(), *values_2TK, strict=True)
    active = ([RoutedExpert(*expert) for expert in zip(*row, strict=True) if expert[1] != 0] for row in rows)
    # Gates without a top-k return experts in order of id.
    return [tuple(sorted(experts, key=lambda expert: -expert.coefficient)) for experts in active]
