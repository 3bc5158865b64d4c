"""Choosing the next token, so that two arms differ by their probabilities alone and never by luck.

Every arm takes the token with the largest log p + Gumbel noise, and the noise depends on seed and step alone. Where
two arms have the same probabilities they take the same token; where these differ a little, they mostly do.

Shapes: R rows, V vocabulary, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.config import Sampling

FIRST_LOOK = 256
"""Tokens among which the wanted share of probability is looked for before all are sorted."""


def gumbel_noise(seed: int, step: int, vocabulary: int) -> Tensor:
    """[V] standard Gumbel noise of one step, the same on every device."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    uniform_V = torch.rand(vocabulary, generator=generator, dtype=torch.float64)
    return -torch.log(-torch.log(uniform_V.clamp(1e-300, 1 - 1e-16)))


def penalised(logits_V: Tensor, used: set[int], sampling: Sampling) -> Tensor:
    """Logits after the repetition penalty (divided where positive, multiplied where negative)."""
    if sampling.repetition_penalty == 1 or not used:
        return logits_V
    ids = torch.tensor(sorted(used), device=logits_V.device)
    chosen = logits_V[ids]
    penalty = sampling.repetition_penalty
    return logits_V.index_copy(0, ids, torch.where(chosen > 0, chosen / penalty, chosen * penalty))


def choose(logits_V: Tensor, used: set[int], sampling: Sampling, noise_V: Tensor) -> int:
    """The next token's id of one text; as ``choose_all``."""
    return choose_all(logits_V.unsqueeze(0), [used], sampling, noise_V.unsqueeze(0))[0]


def choose_all(logits_RV: Tensor, used: Sequence[set[int]], sampling: Sampling, noise_RV: Tensor) -> list[int]:
    """The next token's id of each of R texts.

    Args:
        logits_RV: raw next-token logits.
        used: ids of each text so far.
        sampling: temperature, top-k, top-p and repetition penalty.
        noise_RV: from ``gumbel_noise``.
    """
    rows = zip(logits_RV.double().cpu(), used, strict=True)
    logits_RV = torch.stack([penalised(logits_V, ids, sampling) for logits_V, ids in rows])
    if sampling.temperature > 0:
        logits_RV = _within(logits_RV / sampling.temperature, sampling) + noise_RV
    chosen: list[int] = logits_RV.argmax(dim=-1).tolist()
    return chosen


def _within(logits_RV: Tensor, sampling: Sampling) -> Tensor:
    """Logits with everything outside top-k and top-p at minus infinity."""
    vocabulary = logits_RV.shape[-1]
    if not sampling.top_k and sampling.top_p == 1:
        return logits_RV
    largest = min(sampling.top_k or vocabulary, vocabulary)
    all_RC = logits_RV if largest == vocabulary else logits_RV.topk(largest, dim=-1).values
    total_R1 = torch.logsumexp(all_RC, dim=-1, keepdim=True)
    # The few most probable tokens nearly always hold the wanted share; a full sort is only for when they do not.
    for count in (min(FIRST_LOOK, largest), largest):
        sorted_RC, order_RC = logits_RV.topk(count, dim=-1)
        probabilities_RC = (sorted_RC - total_R1).exp()
        before_RC = probabilities_RC.cumsum(dim=-1) - probabilities_RC
        if count == largest or bool((before_RC[..., -1] >= sampling.top_p).all()):
            break
    kept_RC = torch.where(before_RC < sampling.top_p, sorted_RC, -torch.inf)
    return torch.full_like(logits_RV, -torch.inf).scatter(-1, order_RC, kept_RC)
