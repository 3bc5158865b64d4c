"""Confidence of next-token predictions, and the losses that lower it.

Shapes: S texts, P predictions, V vocabulary, L tokens of a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from mxd.trainer.config.privacy import ProtectionLoss
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids, single_texts
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_compatible_runs
from mxd.trainer.training.privacy.passages import EncodedTexts
from mxd.trainer.training.privacy.replacement import ReplacementModel, next_token_loss
from mxd.trainer.training.privacy.results import Confidence, TokenConfidence, TokenPrediction
from mxd.trainer.utils.bootstrap import Floats


def kl_from_uniform(logits_PV: Tensor) -> Tensor:
    """KL(U || p) in nats, [P]: log-sum-exp of the logits minus their mean and ln V, hence convex in the logits."""
    return logits_PV.logsumexp(-1) - logits_PV.mean(-1) - math.log(logits_PV.shape[-1])


def missing_entropy(logits_PV: Tensor) -> Tensor:
    """KL(p || U) in nats, [P]: ln V minus the entropy of p."""
    log_p_PV = logits_PV.log_softmax(-1)
    return math.log(logits_PV.shape[-1]) + (log_p_PV.exp() * log_p_PV).sum(-1)


LOSSES: dict[ProtectionLoss, Callable[[Tensor], Tensor]] = {
    "kl-from-uniform": kl_from_uniform,
    "missing-entropy": missing_entropy,
}


def combine_gradients(first: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    """Add two gradients with conflicts removed (PCGrad, arXiv 2001.06782).

    If their inner product is negative, each is projected onto the plane orthogonal to the other. Then, to first order,
    neither loss rises.
    """
    inner = _inner(first, other)
    if inner >= 0:
        return [a + b for a, b in zip(first, other, strict=True)]
    of_other, of_first = inner / _inner(other, other), inner / _inner(first, first)
    return [a - of_other * b + b - of_first * a for a, b in zip(first, other, strict=True)]


def _inner(first: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return sum(float(a.flatten().double() @ b.flatten().double()) for a, b in zip(first, other, strict=True))


TOP_TOKENS = 5

Layers = Mapping[int, SparseLayer]
"""Layers by layer index."""


@torch.no_grad()
def measure_confidence(model: ReplacementModel, texts: EncodedTexts) -> Confidence:
    """Mean confidence over the scored predictions of some texts."""
    rows = [_confidence_rows(logits_PV, next_P) for logits_PV, next_P in model.predictions(texts)]
    means = torch.cat(rows).double().mean(0).tolist()
    return Confidence(texts.predictions, *means)


def _confidence_rows(logits_PV: Tensor, next_P: Tensor) -> Tensor:
    """The six measures of ``Confidence`` for each prediction, [P, 6]."""
    vocabulary = logits_PV.shape[-1]
    p_PV = logits_PV.softmax(-1)
    top_PK = p_PV.topk(min(TOP_TOKENS, vocabulary), dim=1).values
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
def text_losses(model: ReplacementModel, texts: EncodedTexts) -> Floats:
    """Mean next-token loss of each text in nats, [S]. All texts must have the same number of predictions."""
    return _per_text([next_token_loss(*part) for part in model.predictions(texts)], len(texts))


@torch.no_grad()
def confidence_and_losses(model: ReplacementModel, texts: EncodedTexts) -> tuple[Confidence, Floats]:
    """``measure_confidence`` and ``text_losses`` in one pass over the texts."""
    rows, losses = [], []
    for logits_PV, next_P in model.predictions(texts):
        rows.append(_confidence_rows(logits_PV, next_P))
        losses.append(next_token_loss(logits_PV, next_P))
    return Confidence(texts.predictions, *torch.cat(rows).double().mean(0).tolist()), _per_text(losses, len(texts))


def _per_text(losses: Sequence[Tensor], texts: int) -> Floats:
    return np.asarray(torch.cat(list(losses)).double().view(texts, -1).mean(1).cpu().numpy())


@torch.inference_mode()
def confidence_by_token(
    language_model: LanguageModel, before: Sequence[Run], after: Sequence[Run], text: str
) -> list[TokenConfidence]:
    """Predictions at every token of a text, with each of two sets of runs.

    Raises:
        TooLongError: the text exceeds the context length.
        UserError: the runs of a set cannot be combined.
    """
    for runs in (before, after):
        check_compatible_runs(runs)
    before_layers, after_layers = ({run.config.layer: run.layer for run in runs} for runs in (before, after))
    return compare_tokens(language_model, before_layers, after_layers, text, before[0].config.text.start_token)


@torch.no_grad()
def compare_tokens(
    language_model: LanguageModel, before: Layers, after: Layers, text: str, start_token: str | None
) -> list[TokenConfidence]:
    """Predictions at every token of a text, with each of two sets of layers.

    Raises:
        TooLongError: the text exceeds the context length.
    """
    ids = prompt_ids(language_model, text, start_token=start_token)
    predictions = [_token_predictions(language_model, layers, ids) for layers in (before, after)]
    return [
        TokenConfidence(*token)
        for token in zip(token_texts(language_model.tokenizer, ids)[1:], *predictions, strict=True)
    ]


def _token_predictions(language_model: LanguageModel, layers: Layers, ids: list[int]) -> list[TokenPrediction]:
    with language_model.replace({index: layer.to(language_model.device_of(index)) for index, layer in layers.items()}):
        p_TV: Tensor = language_model.logits(torch.tensor([ids]))[0, :-1].softmax(-1)
    token_T = torch.tensor(ids[1:], device=p_TV.device)
    entropy_T = torch.special.entr(p_TV).sum(-1) / math.log(p_TV.shape[-1])
    max_T, likely_T = p_TV.max(-1)
    texts = single_texts(language_model, set(likely_T.tolist()))
    columns = (p_TV.gather(1, token_T.unsqueeze(1)).squeeze(1), entropy_T, likely_T, max_T)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        TokenPrediction(probability, entropy, texts[likely], maximum) for probability, entropy, likely, maximum in rows
    ]
