"""Choosing the next token, so that two arms differ by their probabilities alone and never by luck.

Every arm takes the token with the largest log p + Gumbel noise, and the noise depends on seed and step alone. Where
two arms have the same probabilities they take the same token; where these differ a little, they mostly do.

Shapes: V vocabulary.
"""

from __future__ import annotations

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
    """The next token's id.

    Args:
        logits_V: raw next-token logits.
        used: ids of the text so far.
        sampling: temperature, top-k, top-p and repetition penalty.
        noise_V: from ``gumbel_noise``.
    """
    logits_V = penalised(logits_V.double().cpu(), used, sampling)
    if sampling.temperature == 0:
        return int(logits_V.argmax())
    logits_V = logits_V / sampling.temperature
    return int((_within(logits_V, sampling) + noise_V).argmax())


def _within(logits_V: Tensor, sampling: Sampling) -> Tensor:
    """Logits with everything outside top-k and top-p at minus infinity."""
    if not sampling.top_k and sampling.top_p == 1:
        return logits_V
    largest = min(sampling.top_k or len(logits_V), len(logits_V))
    total = torch.logsumexp(logits_V if largest == len(logits_V) else logits_V.topk(largest).values, dim=0)
    # The few most probable tokens nearly always hold the wanted share; a full sort is only for when they do not.
    for count in (min(FIRST_LOOK, largest), largest):
        sorted_C, order_C = logits_V.topk(count)
        probabilities_C = (sorted_C - total).exp()
        before_C = probabilities_C.cumsum(dim=0) - probabilities_C
        if count == largest or before_C[-1] >= sampling.top_p:
            break
    kept_C = torch.where(before_C < sampling.top_p, sorted_C, -torch.inf)
    return torch.full_like(logits_V, -torch.inf).index_copy(0, order_C, kept_C)
