"""Choosing the next token, so that two arms differ by their probabilities alone and never by luck.

Every arm takes the token with the largest log p + Gumbel noise, and the noise depends on seed and step alone. Where
two arms have the same probabilities they take the same token; where these differ a little, they mostly do.

Shapes: R rows, S some of them, V vocabulary, P used tokens of all rows.
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
    return gumbel_noises([(seed, step)], vocabulary)[0]


def gumbel_noises(steps: Sequence[tuple[int, int]], vocabulary: int) -> Tensor:
    """[len(steps), V]: the same for several, each a seed and a step."""
    noise_RV = torch.empty(len(steps), vocabulary, dtype=torch.float64)
    for noise_V, (seed, step) in zip(noise_RV, steps, strict=True):
        torch.rand(vocabulary, generator=torch.Generator().manual_seed(seed * 1_000_003 + step), out=noise_V)
    return noise_RV.clamp_(1e-300, 1 - 1e-16).log_().neg_().log_().neg_()


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
    noised_RV = logits_RV + noise_RV
    if not bool(heat_R1.all()):
        noised_RV = torch.where(heat_R1 > 0, noised_RV, logits_RV)
    kept = _Kept(logits_RV, samplings)
    best_R: Tensor = noised_RV.argmax(dim=-1)
    outside_S = _outside(kept, torch.arange(len(best_R)), best_R)
    for _ in range(TRIES - 1):
        if not len(outside_S):
            break
        noised_RV[outside_S, best_R[outside_S]] = -torch.inf
        best_R[outside_S] = noised_RV[outside_S].argmax(dim=-1)
        outside_S = _outside(kept, outside_S, best_R)
    if len(outside_S):
        best_R[outside_S] = torch.where(kept.whole(outside_S), noised_RV[outside_S], -torch.inf).argmax(dim=-1)
    ids: list[int] = best_R.tolist()
    return ids


def _outside(kept: _Kept, rows_S: Tensor, best_R: Tensor) -> Tensor:
    """Of these rows, those whose best token is not kept."""
    return rows_S[~kept.holds(rows_S, best_R[rows_S])]


class _Kept:
    """What top-k and top-p leave of the tokens of each row; at temperature 0 they leave all."""

    def __init__(self, logits_RV: Tensor, samplings: Sequence[Sampling]) -> None:
        vocabulary = logits_RV.shape[1]
        self._logits_RV = logits_RV
        self._probabilities_RV = logits_RV.softmax(dim=-1)
        share = [it.top_p if it.temperature and it.top_p < 1 else torch.inf for it in samplings]
        count = [it.top_k if it.temperature and 0 < it.top_k < vocabulary else vocabulary for it in samplings]
        self._share_R, self._count_R = torch.tensor([share, count], dtype=torch.float64)
        for row, largest in enumerate(count):
            if largest < vocabulary:  # the probabilities of those that are kept add up to 1
                self._probabilities_RV[row] /= self._probabilities_RV[row].topk(largest).values.sum()
        self._counts = min(count) < vocabulary

    def holds(self, rows_S: Tensor, ids_S: Tensor) -> Tensor:
        """[S]: whether a token of each row is among the ``top_k``, and its betters hold less than ``top_p``."""
        all_rows = len(rows_S) == len(self._share_R)  # nearly always, and then nothing is copied
        logits_SV = self._logits_RV if all_rows else self._logits_RV[rows_S]
        probabilities_SV = self._probabilities_RV if all_rows else self._probabilities_RV[rows_S]
        better_SV = logits_SV > logits_SV.gather(1, ids_S.unsqueeze(1))
        inside_S: Tensor = torch.where(better_SV, probabilities_SV, 0.0).sum(dim=-1) < self._share_R[rows_S]
        if self._counts:
            inside_S &= better_SV.sum(dim=-1) < self._count_R[rows_S]
        return inside_S

    def whole(self, rows_S: Tensor) -> Tensor:
        """[S, V]: the same of every token of these rows, by a full sort."""
        order_SV = self._logits_RV[rows_S].argsort(dim=-1, descending=True, stable=True)
        sorted_SV = self._probabilities_RV[rows_S].gather(1, order_SV)
        before_SV = sorted_SV.cumsum(dim=-1) - sorted_SV
        rank_V = torch.arange(order_SV.shape[1])
        inside_SV = (before_SV < self._share_R[rows_S, None]) & (rank_V < self._count_R[rows_S, None])
        return torch.zeros_like(inside_SV).scatter_(1, order_SV, inside_SV)
