"""One forward pass in which every node of a circuit is a leaf, so that gradients are edges.

In the place of each MLP that has a run stands

    y = sum_n a_n (c_n * zD) + rest             a_n and rest are leaves, the direction c_n * zD is a constant

where rest is the layer's output bias and, with errors kept, what the layer misses of the MLP. What an MLP without a run
writes is a leaf, and so is what enters the first block at each token. Everything else is linear (``freezing``). An
expert's map depends on the input by zD too; that is held fixed: what explains an expert here is what explains its
coefficient, and its coefficient is linear in the MLP's input as long as the choice of the K experts stands.

Gates are held or live. Held, a gradient with respect to a leaf is its direct effect, past no other expert. Live,
coefficients follow their inputs, and it is the effect along all paths.

Shapes: B rows of the same text, T tokens, I input width, O output width, K active, V vocabulary, W residual width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainer.circuits.config import Errors
from trainer.circuits.freezing import Freezing
from trainer.language_model import LanguageModel
from trainer.layers.baselines import SkipTranscoder
from trainer.layers.sparse import Routing, SparseLayer
from trainer.run import Run
from trainer.stand_ins import Mlp, StandIn

Stuck = Callable[[int, Tensor], Tensor]
"""From a layer and its experts [B x T, K] to which of their coefficients follow nothing though gates are live."""


@dataclass(frozen=True, eq=False)
class Site:
    """What a pass has seen at the MLP of one layer with a run."""

    layer: SparseLayer
    x_BTI: Tensor
    """The MLP's input, through which gradients flow."""
    coefficients_PK: Tensor
    """Leaf; P is the B x T tokens of all rows."""
    indices_PK: Tensor
    rest_BTO: Tensor
    """Leaf."""
    error_BTO: Tensor
    bias_O: Tensor


@dataclass(frozen=True, eq=False)
class Parts:
    """What every source adds to the target of each row: gradient times value."""

    embeddings_BT: Tensor
    experts_BTK: Mapping[int, Tensor]
    errors_BT: Mapping[int, Tensor]
    mlps_BT: Mapping[int, Tensor]
    """Of the layers without a run."""
    constants_B: Tensor
    """All biases, those of the layers included."""


@dataclass(eq=False)
class FrozenPass:
    """A frozen forward pass of a text in several rows. ``run`` makes one."""

    embedding_BTW: Tensor
    sites: dict[int, Site] = field(default_factory=dict)
    mlps_BTO: dict[int, Tensor] = field(default_factory=dict)
    constants: list[Tensor] = field(default_factory=list)
    logits_BV: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Behind the last token."""

    def parts(self, outputs: Sequence[Tensor], seeds: Sequence[Tensor]) -> Parts:
        """What every source adds to the dot product of ``outputs`` and ``seeds`` in each row."""
        sites, mlps = list(self.sites), list(self.mlps_BTO)
        leaves = [
            self.embedding_BTW,
            *(self.sites[layer].coefficients_PK for layer in sites),
            *(self.sites[layer].rest_BTO for layer in sites),
            *(self.mlps_BTO[layer] for layer in mlps),
            *self.constants,
        ]
        found = torch.autograd.grad(outputs, leaves, seeds, retain_graph=True, allow_unused=True)
        gradients = iter(zip(leaves, found, strict=True))
        rows, tokens = self.embedding_BTW.shape[:2]
        embeddings_BT = _product(*next(gradients)).sum(-1)
        experts = {layer: _product(*next(gradients)).reshape(rows, tokens, -1) for layer in sites}
        rests = {layer: next(gradients)[1] for layer in sites}
        errors = {layer: _product(self.sites[layer].error_BTO, rests[layer]).sum(-1) for layer in sites}
        biases_B = sum(_product(self.sites[it].bias_O, rests[it]).reshape(rows, -1).sum(-1) for it in sites)
        written = {layer: _product(*next(gradients)).sum(-1) for layer in mlps}
        constants_B = sum((_product(*pair).reshape(rows, -1).sum(-1) for pair in gradients), start=biases_B)
        assert isinstance(constants_B, Tensor)
        return Parts(embeddings_BT, experts, errors, written, constants_B)


def run_frozen(
    language_model: LanguageModel,
    runs: Sequence[Run],
    ids_BT: Tensor,
    errors: Errors,
    stuck: Stuck | None = None,
) -> FrozenPass:
    """Read a text in which every node is a leaf.

    Args:
        runs: one a layer.
        ids_BT: the same text in every row.
        errors: whether what the layers miss is added.
        stuck: where given, gates are live, but for these; by default all are held.
    """
    rows, tokens = ids_BT.shape
    it = FrozenPass(torch.zeros(rows, tokens, 0))
    of_layer = {run.config.layer: layer_of(language_model, run) for run in runs}
    stand_ins: dict[int, StandIn] = {
        number: partial(_answer, it, number, of_layer[number], errors, stuck)
        if number in of_layer
        else partial(_untouched, it, number)
        for number in range(len(language_model.anatomy.blocks))
    }
    handle = language_model.anatomy.blocks[0].register_forward_pre_hook(partial(_enter, it), with_kwargs=True)
    with torch.enable_grad(), Freezing() as freezing:
        try:
            with language_model.stand_in(stand_ins):
                residual_BW = language_model.residual(ids_BT)[:, -1]
        finally:
            handle.remove()
        it.logits_BV = language_model.unembed(residual_BW).float()
    it.constants = freezing.constants
    return it


def layer_of(language_model: LanguageModel, run: Run) -> SparseLayer:
    """A run's layer where its MLP works, as fixed as the language model itself."""
    return run.layer.to(language_model.device_of(run.config.layer)).requires_grad_(False)


def all_live(_layer: int, indices_PK: Tensor) -> Tensor:
    """Every coefficient follows its input."""
    return torch.zeros_like(indices_PK, dtype=torch.bool)


def _product(values: Tensor, gradient: Tensor | None) -> Tensor:
    return torch.zeros_like(values) if gradient is None else (values.detach() * gradient).float()


def _leaf(values: Tensor) -> Tensor:
    return values.detach().clone().requires_grad_()


def _enter(it: FrozenPass, _block: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What the first block reads becomes a leaf."""
    it.embedding_BTW = _leaf(inputs[0] if inputs else named["hidden_states"])
    entering_BTW = it.embedding_BTW.clone()
    if inputs:
        return (entering_BTW, *inputs[1:]), named
    return inputs, {**named, "hidden_states": entering_BTW}


def _untouched(it: FrozenPass, number: int, _x: Tensor, mlp: Mlp) -> Tensor:
    with torch.no_grad():
        written = mlp()
    it.mlps_BTO[number] = _leaf(written)
    return it.mlps_BTO[number].clone()  # some blocks add to it in place


def _answer(
    it: FrozenPass,
    number: int,
    layer: SparseLayer,
    errors: Errors,
    stuck: Stuck | None,
    x_BTI: Tensor,
    mlp: Mlp,
) -> Tensor:
    """The output of a layer whose coefficients are leaves, and of what it misses."""
    x_PI = x_BTI.reshape(-1, x_BTI.shape[-1]).float()
    shape = (*x_BTI.shape[:-1], -1)
    live_PK, indices_PK = layer.route(x_PI)
    routing = Routing(live_PK.detach(), indices_PK)
    with torch.no_grad():
        dense_PM = layer.dense_output(x_PI)
        answer_BTO = layer.decode(dense_PM, routing).reshape(shape)
        error_BTO = mlp().float() - answer_BTO if errors == "kept" else torch.zeros_like(answer_BTO)
        bias_O = output_bias(layer, dense_PM)
    coefficients_PK = _leaf(routing.coefficients_TK)
    rest_BTO = _leaf(error_BTO + bias_O)
    it.sites[number] = Site(layer, x_BTI, coefficients_PK, indices_PK, rest_BTO, error_BTO, bias_O)
    if stuck is not None:
        coefficients_PK = coefficients_PK + (live_PK - live_PK.detach()) * ~stuck(number, indices_PK)
    output_PO = layer.contribution(dense_PM, Routing(coefficients_PK, indices_PK))
    if isinstance(layer, SkipTranscoder):  # its linear map of the input is linear already
        output_PO = output_PO + layer.dense_output(x_PI)
    return (output_PO.reshape(shape) + rest_BTO).to(x_BTI.dtype)


def output_bias(layer: SparseLayer, dense_PM: Tensor) -> Tensor:
    """What a layer adds whatever its input is, [O]: the answer where nothing is active and nothing goes in."""
    nothing = Routing(dense_PM.new_zeros(1, 1), torch.zeros(1, 1, dtype=torch.int64, device=dense_PM.device))
    return layer.decode(torch.zeros_like(dense_PM[:1]), nothing)[0]
