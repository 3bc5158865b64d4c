"""How sure a language model is of the next token, with layers in place of its MLPs.

Shapes: S texts, P predictions, V vocabulary, L tokens of a sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.evaluation.intervals import Floats
from trainer.privacy.objective import kl_from_uniform
from trainer.privacy.passages import Encoded
from trainer.privacy.placed import Placed, next_token

TOP = 5


@dataclass(frozen=True)
class Certainty:
    """Means over predictions. Uniform predictions have a distance of 0 and an entropy of 1."""

    predictions: int
    confidence_distance: float
    """The largest probability less 1/V, where it is above."""
    entropy: float
    """As a share of ln V."""
    top_five: float
    """Probability of the five most probable tokens together."""
    true_token: float
    """Probability of the token that came next."""
    divergence: float
    """KL(U || p) in nats."""
    missing_entropy: float
    """KL(p || U) in nats, ln V less the entropy."""


@dataclass(frozen=True)
class Compared:
    """The same texts with the runs as they were, and as they are now."""

    before: Certainty
    after: Certainty


@torch.no_grad()
def certainty(placed: Placed, texts: Encoded) -> Certainty:
    """How sure the next tokens of some texts are."""
    rows = [_of_predictions(logits_PV, next_P) for logits_PV, next_P in placed.predictions(texts)]
    means = torch.cat(rows).double().mean(0).tolist()
    return Certainty(texts.predictions, *means)


def _of_predictions(logits_PV: Tensor, next_P: Tensor) -> Tensor:
    """The six measures of each prediction, [P, 6]."""
    vocabulary = logits_PV.shape[-1]
    p_PV = logits_PV.softmax(-1)
    top_PK = p_PV.topk(min(TOP, vocabulary), dim=1).values
    entropy_P = torch.special.entr(p_PV).sum(-1)
    true_P = p_PV.gather(1, next_P.unsqueeze(1)).squeeze(1)
    distance_P = (top_PK[:, 0] - 1 / vocabulary).clamp_min(0)
    missing_P = math.log(vocabulary) - entropy_P
    measures = (
        distance_P,
        entropy_P / math.log(vocabulary),
        top_PK.sum(1),
        true_P,
        kl_from_uniform(logits_PV),
        missing_P,
    )
    return torch.stack(measures, dim=1)


@torch.no_grad()
def losses(placed: Placed, texts: Encoded) -> Floats:
    """The mean next-token loss in nats of each text, [S]; each has as many predictions as any other."""
    found = torch.cat([next_token(*of_some) for of_some in placed.predictions(texts)])
    return np.asarray(found.double().view(len(texts), -1).mean(1).cpu().numpy())
