"""Coupled sampling: two variants of a text differ only by their probabilities, never by sampling noise.

Every token is the argmax of log p + Gumbel noise, and the noise depends only on seed and step. Variants with equal
probabilities therefore sample the same token, and variants with similar ones usually do.

Shapes: B rows of the batch, R texts, S some of them, V vocabulary size, P used tokens of all texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mxd.trainer.config import Sampling
from mxd.trainer.inference.edits import consecutive
from mxd.trainer.inference.results import Alternative
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import single_texts

MAX_REJECTIONS = 4
"""Candidates that are tested one by one before all tokens are sorted."""
NUM_ALTERNATIVES = 5


class SamplingRequest(NamedTuple):
    """One sequence that needs its next token."""

    row: int
    """Batch row whose logits the token is sampled from."""
    counterpart_row: int
    """Batch row with the same tokens under the other variant; used for the KL divergence."""
    ids: Sequence[int]
    sampling: Sampling
    seed: int
    step: int
    """Index of the new token. Seed and step fix the Gumbel noise, so both variants share it."""


class TokenComparison(NamedTuple):
    """A sampled token, with the next-token distributions of its variant and of the counterpart."""

    id: int
    log_probability: float
    """Log-probability of the sampled token under its own variant, in nats."""
    counterpart_log_probability: float
    """Log-probability of the sampled token under the counterpart, in nats."""
    kl: float
    """KL divergence from the own distribution to the counterpart's, in nats."""
    alternatives: tuple[Alternative, ...]
    """Most probable tokens under the own variant."""
    counterpart_alternatives: tuple[Alternative, ...]
    """Most probable tokens under the counterpart."""


def sample_and_compare(
    logits_BV: Tensor, log_p_BV: Tensor, requests: Sequence[SamplingRequest], language_model: LanguageModel
) -> list[TokenComparison]:
    """Sample a token for each request and compare its two variants.

    Args:
        logits_BV: logits of all batch rows.
        log_p_BV: log-probabilities of all batch rows.
        requests: the sequences to sample.
        language_model: source of the token texts.
    """
    rows = [request.row for request in requests]
    counterparts = [request.counterpart_row for request in requests]
    ids = _sample(logits_BV[consecutive(rows)], requests)
    rows_R, counterparts_R, ids_R = torch.tensor([rows, counterparts, ids], device=log_p_BV.device)
    own_RV, other_RV = log_p_BV[rows_R], log_p_BV[counterparts_R]
    kl_R = (own_RV - other_RV).mul_(own_RV.exp_()).sum(dim=-1)
    columns = torch.stack([log_p_BV[rows_R, ids_R], log_p_BV[counterparts_R, ids_R], kl_R], dim=1).tolist()
    alternatives = _alternatives(log_p_BV, {*rows, *counterparts}, language_model)
    return [
        TokenComparison(
            token, own, other, max(0.0, kl), alternatives[request.row], alternatives[request.counterpart_row]
        )
        for token, (own, other, kl), request in zip(ids, columns, requests, strict=True)
    ]


def _sample(logits_RV: Tensor, requests: Sequence[SamplingRequest]) -> list[int]:
    # Both variants of a request have the same seed and step, so their noise is computed once.
    index = {key: number for number, key in enumerate(dict.fromkeys((each.seed, each.step) for each in requests))}
    noise_RV = gumbel_noises(list(index), logits_RV.shape[-1])[[index[each.seed, each.step] for each in requests]]
    return sample_tokens(
        logits_RV, [set(each.ids) for each in requests], [each.sampling for each in requests], noise_RV
    )


def _alternatives(
    log_p_BV: Tensor, rows: set[int], language_model: LanguageModel
) -> Mapping[int, tuple[Alternative, ...]]:
    """Batch row -> its most probable tokens."""
    top = log_p_BV.topk(min(NUM_ALTERNATIVES, log_p_BV.shape[1]), dim=-1)
    ids, probabilities = top.indices.tolist(), top.values.exp().tolist()
    texts = single_texts(language_model, {token for row in rows for token in ids[row]})
    return {
        row: tuple(Alternative(token, texts[token], p) for token, p in zip(ids[row], probabilities[row], strict=True))
        for row in rows
    }


def gumbel_noise(seed: int, step: int, vocabulary: int) -> Tensor:
    """Standard Gumbel noise [V] of one step, the same on every device."""
    return gumbel_noises([(seed, step)], vocabulary)[0]


def gumbel_noises(steps: Sequence[tuple[int, int]], vocabulary: int) -> Tensor:
    """Standard Gumbel noise [len(steps), V] of several pairs of seed and step."""
    noise_RV = torch.empty(len(steps), vocabulary, dtype=torch.float64)
    for noise_V, (seed, step) in zip(noise_RV, steps, strict=True):
        # Modulo 2**64, the range of PyTorch's seeds; the multiplier is odd, so no two seeds become the same.
        mixed = (seed * 1_000_003 + step) % 2**64
        torch.rand(vocabulary, generator=torch.Generator().manual_seed(mixed), out=noise_V)
    return noise_RV.clamp_(1e-300, 1 - 1e-16).log_().neg_().log_().neg_()


def apply_repetition_penalty(logits_RV: Tensor, used: Sequence[set[int]], samplings: Sequence[Sampling]) -> Tensor:
    """Divide positive logits of used tokens by the repetition penalty, and multiply negative ones by it."""
    penalties = [sampling.repetition_penalty for sampling in samplings]
    penalised = [ids if penalty != 1 else () for ids, penalty in zip(used, penalties, strict=True)]
    rows = [row for row, ids in enumerate(penalised) for _ in ids]
    if not rows:
        return logits_RV
    rows_P, ids_P = torch.tensor([rows, [token for ids in penalised for token in ids]], device=logits_RV.device)
    penalty_P = torch.tensor(penalties, dtype=logits_RV.dtype, device=logits_RV.device)[rows_P]
    logits_P = logits_RV[rows_P, ids_P]
    return logits_RV.index_put((rows_P, ids_P), torch.where(logits_P > 0, logits_P / penalty_P, logits_P * penalty_P))


def sample_tokens(
    logits_RV: Tensor, used: Sequence[set[int]], samplings: Sequence[Sampling], noise_RV: Tensor
) -> list[int]:
    """Sample the next token of each text with its own settings.

    Tests the best candidates against top-k and top-p first, since they nearly always pass, and sorts only if none does.

    Args:
        logits_RV: raw next-token logits.
        used: ids of each text so far.
        samplings: temperature, top-k, top-p and repetition penalty of each text.
        noise_RV: noise from ``gumbel_noises``.
    """
    logits_RV = apply_repetition_penalty(logits_RV.cpu().double(), used, samplings)
    temperature_R1 = torch.tensor([[sampling.temperature] for sampling in samplings], dtype=torch.float64)
    logits_RV = logits_RV / torch.where(temperature_R1 > 0, temperature_R1, 1.0)
    noised_RV = logits_RV + noise_RV
    if not bool(temperature_R1.all()):
        noised_RV = torch.where(temperature_R1 > 0, noised_RV, logits_RV)
    nucleus = _Nucleus(logits_RV, samplings)
    best_R: Tensor = noised_RV.argmax(dim=-1)
    rejected_S = nucleus.rejected(torch.arange(len(best_R)), best_R)
    for _ in range(MAX_REJECTIONS - 1):
        if not len(rejected_S):
            break
        noised_RV[rejected_S, best_R[rejected_S]] = -torch.inf
        best_R[rejected_S] = noised_RV[rejected_S].argmax(dim=-1)
        rejected_S = nucleus.rejected(rejected_S, best_R)
    if len(rejected_S):
        allowed_SV = nucleus.allowed(rejected_S)
        best_R[rejected_S] = torch.where(allowed_SV, noised_RV[rejected_S], -torch.inf).argmax(dim=-1)
    ids: list[int] = best_R.tolist()
    return ids


class _Nucleus:
    """The tokens of each text that top-k and top-p allow; all tokens at temperature 0."""

    def __init__(self, logits_RV: Tensor, samplings: Sequence[Sampling]) -> None:
        vocabulary = logits_RV.shape[1]
        self._logits_RV = logits_RV
        self._probabilities_RV = logits_RV.softmax(dim=-1)
        top_p = [each.top_p if each.temperature and each.top_p < 1 else torch.inf for each in samplings]
        top_k = [each.top_k if each.temperature and 0 < each.top_k < vocabulary else vocabulary for each in samplings]
        self._top_p_R, self._top_k_R = torch.tensor([top_p, top_k], dtype=torch.float64)
        for row, k in enumerate(top_k):
            if k < vocabulary:  # the probabilities of the top k sum to 1
                self._probabilities_RV[row] /= self._probabilities_RV[row].topk(k).values.sum()
        self._uses_top_k = min(top_k) < vocabulary

    def rejected(self, rows_S: Tensor, best_R: Tensor) -> Tensor:
        """Subset of the texts ``rows_S`` whose token in ``best_R`` is not allowed."""
        return rows_S[~self._allows(rows_S, best_R[rows_S])]

    def _allows(self, rows_S: Tensor, ids_S: Tensor) -> Tensor:
        """[S]: whether each token is among the top k, and the tokens above it hold less than top-p."""
        all_rows = len(rows_S) == len(self._top_p_R)  # the common case, without a copy
        logits_SV = self._logits_RV if all_rows else self._logits_RV[rows_S]
        probabilities_SV = self._probabilities_RV if all_rows else self._probabilities_RV[rows_S]
        above_SV = logits_SV > logits_SV.gather(1, ids_S.unsqueeze(1))
        allowed_S: Tensor = torch.where(above_SV, probabilities_SV, 0.0).sum(dim=-1) < self._top_p_R[rows_S]
        if self._uses_top_k:
            allowed_S &= above_SV.sum(dim=-1) < self._top_k_R[rows_S]
        return allowed_S

    def allowed(self, rows_S: Tensor) -> Tensor:
        """[S, V]: whether each token of some texts is allowed, by a full sort."""
        order_SV = self._logits_RV[rows_S].argsort(dim=-1, descending=True, stable=True)
        sorted_SV = self._probabilities_RV[rows_S].gather(1, order_SV)
        before_SV = sorted_SV.cumsum(dim=-1) - sorted_SV
        rank_V = torch.arange(order_SV.shape[1])
        allowed_SV = (before_SV < self._top_p_R[rows_S, None]) & (rank_V < self._top_k_R[rows_S, None])
        return torch.zeros_like(allowed_SV).scatter_(1, order_SV, allowed_SV)
