"""What is descended on: being unsure on the passages, the loss elsewhere, and what to do where these two disagree.

    min over w of  θ L_K(w, passages) + (1 - θ) L_A(w, other text) + λ/2 |w - w_0|²

after test-time privacy for classifiers (Ashiq et al., arXiv 2509.11625). L_A is the next-token loss. L_K is a
divergence between the next-token distribution p and the uniform one U over the vocabulary, and is 0 for p = U alone.

Shapes: P predictions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from trainer.protect_config import ProtectionLoss


def kl_from_uniform(logits_PV: Tensor) -> Tensor:
    """KL(U || p) in nats, [P]: the log-sum-exp of the logits less their mean and ln V, so convex in the logits."""
    return logits_PV.logsumexp(-1) - logits_PV.mean(-1) - math.log(logits_PV.shape[-1])


def missing_entropy(logits_PV: Tensor) -> Tensor:
    """ln V less the entropy of p in nats, [P]; that is KL(p || U)."""
    log_p_PV = logits_PV.log_softmax(-1)
    return math.log(logits_PV.shape[-1]) + (log_p_PV.exp() * log_p_PV).sum(-1)


LOSSES: dict[ProtectionLoss, Callable[[Tensor], Tensor]] = {
    "kl-from-uniform": kl_from_uniform,
    "missing-entropy": missing_entropy,
}


def without_conflict(first: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    """The sum of two gradients, each without what would undo the other.

    Where their inner product is negative, each is projected onto the plane that is orthogonal to the other as it was
    (PCGrad, arXiv 2001.06782): then neither loss rises, to first order, for the sake of the other.
    """
    inner = _inner(first, other)
    if inner >= 0:
        return [a + b for a, b in zip(first, other, strict=True)]
    of_other, of_first = inner / _inner(other, other), inner / _inner(first, first)
    return [a - of_other * b + b - of_first * a for a, b in zip(first, other, strict=True)]


def _inner(first: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return sum(float(a.flatten().double() @ b.flatten().double()) for a, b in zip(first, other, strict=True))
