"""What may answer in an MLP's place, side by side in one forward pass that shares all that comes before it.

Shapes: A arms, T tokens of a sequence, I input width, O output width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.evaluation.intervals import Floats
from trainer.evaluation.statistics import Statistics
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing, SparseLayer
from trainer.progress import Progress, ShouldStop
from trainer.run import Run
from trainer.stand_ins import Mlp, StandIn, in_blocks

Answer = Callable[[Tensor, Tensor], Tensor]
"""From an MLP's input [T, I] and its output [T, O] to another output [T, O]."""

Arm = Mapping[int, Answer]
"""What answers in which layers; the others keep their MLP."""

ORIGINAL: Arm = {}


def zeroed(_x_TI: Tensor, output_TO: Tensor) -> Tensor:
    """Nothing at all."""
    return torch.zeros_like(output_TO)


def constant(mean_O: Tensor) -> Answer:
    """Always the same output."""
    return lambda _x_TI, output_TO: mean_O.to(output_TO).expand_as(output_TO)


def arm_of(run: Run, answer: Answer) -> Arm:
    """An answer in all layers that a run writes; a new one for each arm, as it holds what was read in this pass."""
    return in_blocks(run.config.layer, len(run.config.layers), answer)


def zeroed_in(run: Run) -> Arm:
    """Nothing at all in all of them."""
    return dict.fromkeys(run.config.layers, zeroed)


def constant_in(run: Run, mean_O: Tensor) -> Arm:
    """In each its mean output; ``mean_O`` has them side by side."""
    means = zip(run.config.layers, mean_O.chunk(len(run.config.layers)), strict=True)
    return {layer: constant(mean) for layer, mean in means}


class LayerArms:
    """The arms of one sparse layer. What they share of a sequence is worked out once for all of them."""

    def __init__(self, layer: SparseLayer, statistics: Statistics, shared: Sequence[int]) -> None:
        self.layer = layer
        device = layer.table.device
        self._mixing_M = statistics.mixing_M.to(device)
        self._shared_E = torch.tensor(list(shared), device=device)
        self._known: tuple[Tensor, Tensor, Routing] | None = None

    def replaced(self, x_TI: Tensor, output_TO: Tensor) -> Tensor:
        """The layer as it is."""
        return self.layer.decode(*self._answer(x_TI, output_TO))

    def frozen(self, x_TI: Tensor, output_TO: Tensor) -> Tensor:
        """The layer with what its routing decides held at its mean: a C of an MxD, a W_dec of a transcoder."""
        dense_TM, _ = self._answer(x_TI, output_TO)
        return self.layer.decode_mixed(dense_TM, self._mixing_M.expand(len(dense_TM), -1))

    def without_shared(self, x_TI: Tensor, output_TO: Tensor) -> Tensor:
        """The layer with its shared experts switched off."""
        return self._masked(x_TI, output_TO, lambda is_shared_TK: ~is_shared_TK)

    def only_shared(self, x_TI: Tensor, output_TO: Tensor) -> Tensor:
        """The layer with all other experts switched off."""
        return self._masked(x_TI, output_TO, lambda is_shared_TK: is_shared_TK)

    def _masked(self, x_TI: Tensor, output_TO: Tensor, keep: Callable[[Tensor], Tensor]) -> Tensor:
        dense_TM, (coefficients_TK, indices_TK) = self._answer(x_TI, output_TO)
        kept_TK = keep(torch.isin(indices_TK, self._shared_E))
        return self.layer.decode(dense_TM, Routing(coefficients_TK * kept_TK, indices_TK))

    def _answer(self, x_TI: Tensor, output_TO: Tensor) -> tuple[Tensor, Routing]:
        """Dense output and routing of a sequence."""
        read_TI = output_TO if self.layer.reads == "mlp-output" else x_TI
        if self._known is None or self._known[0] is not read_TI:
            self._known = read_TI, self.layer.dense_output(read_TI), self.layer.route(read_TI)
        return self._known[1:]


@dataclass(frozen=True)
class Losses:
    """Of each arm and sequence, [A, S]; the first arm is the original."""

    ce: Floats
    """Mean next-token loss in nats."""
    kl: Floats
    """Mean KL divergence of the original's next-token distribution from the arm's, in nats."""
    agreement: Floats
    """Share of tokens at which the arm's most probable next token is the original's."""


@torch.no_grad()
def measure(
    language_model: LanguageModel, arms: Sequence[Arm], ids_SL: Tensor, progress: Progress, should_stop: ShouldStop
) -> Losses | None:
    """Read sequences to the end with every arm; None where it was stopped."""
    assert not arms[0]
    rows = 1 if language_model.splits(min(layer for arm in arms for layer in arm)) else len(arms)
    found: list[Tensor] = []
    with language_model.stand_in(_stand_ins(arms)):
        for number, ids_L in enumerate(ids_SL):
            if should_stop():
                return None
            logits_ALV = language_model.logits(ids_L.expand(rows, -1))
            found.append(_compare(logits_ALV, ids_L.to(logits_ALV.device)).cpu())
            progress((number + 1) * len(ids_L), ids_SL.numel(), f"{len(arms)} arms")
    return Losses(*(values.numpy() for values in torch.stack(found, dim=2).double()))


def _compare(logits_ALV: Tensor, ids_L: Tensor) -> Tensor:
    """Loss, divergence and agreement of each arm, [3, A]; arm by arm, as a vocabulary may be large."""
    original_LV = logits_ALV[0, :-1].log_softmax(-1)
    first_L = original_LV.argmax(-1)
    rows = []
    for logits_LV in logits_ALV[:, :-1]:
        log_p_LV = logits_LV.log_softmax(-1)
        ce = -log_p_LV.gather(1, ids_L[1:, None]).mean()
        kl = (original_LV.exp() * (original_LV - log_p_LV)).sum(-1).mean().clamp_min(0)
        rows.append(torch.stack([ce, kl, (log_p_LV.argmax(-1) == first_L).float().mean()]))
    return torch.stack(rows, dim=1)


def _stand_ins(arms: Sequence[Arm]) -> dict[int, StandIn]:
    return {layer: _stand_in(arms, layer) for layer in {layer for arm in arms for layer in arm}}


def _stand_in(arms: Sequence[Arm], layer: int) -> StandIn:
    """One row an arm. Where but one row comes in, all arms are still the same up to here."""

    def answer(x_RTI: Tensor, mlp: Mlp) -> Tensor:
        output_RTO = mlp()
        inputs, outputs = list(x_RTI.float()), list(output_RTO.float())
        if len(inputs) == 1:
            inputs, outputs = inputs * len(arms), outputs * len(arms)
        rows = zip(arms, inputs, outputs, strict=True)
        answers = [arm[layer](x_TI, y_TO) if layer in arm else y_TO for arm, x_TI, y_TO in rows]
        return torch.stack(answers).to(output_RTO.dtype)

    return answer


def paired(losses: Losses, arm: int) -> Floats:
    """What an arm adds to the original's loss, [S]."""
    difference_S: Floats = losses.ce[arm] - losses.ce[0]
    return np.asarray(difference_S)
