"""Choosing the next token, so that two arms differ by their probabilities alone and never by luck.

Every arm takes the token with the largest log p + Gumbel noise, and the noise depends on seed and step alone. Where
two arms have the same probabilities they take the same token; where these differ a little, they mostly do.

Shapes: R rows, V vocabulary, P used tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.config import Sampling

TRIES = 4
"""Best tokens that are looked at one by one before all are sorted."""


def gumbel_noise(seed: int, step: int, vocabulary: int) -> Tensor:
    """[V] standard Gumbel noise of one step, the same on every device."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    uniform_V = torch.rand(vocabulary, generator=generator, dtype=torch.float64)
    return -torch.log(-torch.log(uniform_V.clamp(1e-300, 1 - 1e-16)))


def penalised(logits_RV: Tensor, used: Sequence[set[int]], samplings: Sequence[Sampling]) -> Tensor:
    """Logits after the repetition penalty (divided where positive, multiplied where negative)."""
    penalties = [sampling.repetition_penalty for sampling in samplings]
    of_row = [ids if penalty != 1 else () for ids, penalty in zip(used, penalties, strict=True)]
    rows = [row for row, ids in enumerate(of_row) for _ in ids]
    if not rows:
        return logits_RV
    place_P = torch.tensor([rows, [token for ids in of_row for token in ids]], device=logits_RV.device)
    penalty_P = torch.tensor(penalties, dtype=logits_RV.dtype, device=logits_RV.device)[place_P[0]]
    chosen_P = logits_RV[place_P[0], place_P[1]]
    return logits_RV.index_put(
        (place_P[0], place_P[1]), torch.where(chosen_P > 0, chosen_P / penalty_P, chosen_P * penalty_P)
    )


def choose(logits_RV: Tensor, used: Sequence[set[int]], samplings: Sequence[Sampling], noise_RV: Tensor) -> list[int]:
    """The next token's id of each of R texts, each sampled in its own way.

    The best within top-k and top-p is found by looking at the best first: it nearly always is within.

    Args:
        logits_RV: raw next-token logits.
        used: ids of each text so far.
        samplings: temperature, top-k, top-p and repetition penalty of each.
        noise_RV: from ``gumbel_noise``.
    """
    logits_RV = penalised(logits_RV.double().cpu(), used, samplings)
    heat_R1 = torch.tensor([[sampling.temperature] for sampling in samplings], dtype=torch.float64)
    logits_RV = logits_RV / torch.where(heat_R1 > 0, heat_R1, 1.0)
    noised_RV = torch.where(heat_R1 > 0, logits_RV + noise_RV, logits_RV)
    kept = _Kept(logits_RV, samplings)
    for _ in range(TRIES):
        best_R1, ids_R1 = noised_RV.max(dim=-1, keepdim=True)
        inside_R1 = kept.holds(ids_R1)
        if bool(inside_R1.all()):
            break
        noised_RV.scatter_(1, ids_R1, torch.where(inside_R1, best_R1, -torch.inf))
    else:
        ids_R1 = torch.where(kept.whole(), noised_RV, -torch.inf).argmax(dim=-1, keepdim=True)
    ids: list[int] = ids_R1[:, 0].tolist()
    return ids


class _Kept:
    """What top-k and top-p leave of the tokens of each row; at temperature 0 they leave all."""

    def __init__(self, logits_RV: Tensor, samplings: Sequence[Sampling]) -> None:
        vocabulary = logits_RV.shape[1]
        self._logits_RV = logits_RV
        self._probabilities_RV = logits_RV.softmax(dim=-1)
        share = [it.top_p if it.temperature and it.top_p < 1 else torch.inf for it in samplings]
        count = [it.top_k if it.temperature and 0 < it.top_k < vocabulary else vocabulary for it in samplings]
        self._share_R1, self._count_R1 = torch.tensor([share, count], dtype=torch.float64).unsqueeze(2)
        for row, largest in enumerate(count):
            if largest < vocabulary:  # the probabilities of those that are kept add up to 1
                self._probabilities_RV[row] /= self._probabilities_RV[row].topk(largest).values.sum()
        self._counts = min(count) < vocabulary

    def holds(self, ids_R1: Tensor) -> Tensor:
        """[R, 1]: whether a token of each row is among the ``top_k``, and its betters hold less than ``top_p``."""
        better_RV = self._logits_RV > self._logits_RV.gather(1, ids_R1)
        inside_R1: Tensor = (self._probabilities_RV * better_RV).sum(dim=-1, keepdim=True) < self._share_R1
        if self._counts:
            inside_R1 &= better_RV.sum(dim=-1, keepdim=True) < self._count_R1
        return inside_R1

    def whole(self) -> Tensor:
        """[R, V]: the same of every token, by a full sort."""
        order_RV = self._logits_RV.argsort(dim=-1, descending=True, stable=True)
        sorted_RV = self._probabilities_RV.gather(1, order_RV)
        before_RV = sorted_RV.cumsum(dim=-1) - sorted_RV
        rank_V = torch.arange(order_RV.shape[1])
        inside_RV = (before_RV < self._share_R1) & (rank_V < self._count_R1)
        return torch.zeros_like(inside_RV).scatter_(1, order_RV, inside_RV)
