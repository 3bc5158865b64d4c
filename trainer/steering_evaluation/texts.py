"""Continuations of one prompt, each with something added to the output of one MLP at every token, and their scores.

What is added in a row is c times u_n (c_n * zD): the contribution of expert n at c units u_n, its 99th percentile. For
the control by direction, that length points a random way instead.

Shapes: R rows, T tokens, I input width, O output width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.config import Sampling
from trainer.language_model import LanguageModel
from trainer.layers.sparse import Routing, SparseLayer
from trainer.sampling import choose, gumbel_noise
from trainer.stand_ins import Mlp


class Pushes(NamedTuple):
    """What is added in each row, each [R]."""

    expert: Tensor
    coefficient: Tensor
    """c times u_n; 0 for a text that is left alone."""
    direction: Tensor
    """[R, O]: a unit vector that the contribution's length is turned to; zero for the contribution itself."""


class Scores(NamedTuple):
    """Of the new tokens of each row, each [R]."""

    kl: Tensor
    """Mean KL in nats from the untouched next-token distribution to the pushed one, after the same text."""
    loss: Tensor
    """Mean of −log p of the written tokens under the untouched language model, in nats."""


@dataclass(frozen=True)
class Pushed:
    """Answers for an MLP with its own output and what is pushed on top."""

    layer: SparseLayer
    pushes: Pushes

    def __call__(self, x_RTI: Tensor, mlp: Mlp) -> Tensor:
        rows, tokens, width = x_RTI.shape
        columns = Routing(*(values.repeat_interleave(tokens).unsqueeze(1) for values in self.pushes[1::-1]))
        dense_PM = self.layer.dense_output(x_RTI.reshape(-1, width).float())
        added_RTO = self.layer.contribution(dense_PM, columns).reshape(rows, tokens, -1)
        turned_RTO = added_RTO.norm(dim=2, keepdim=True) * self.pushes.direction.unsqueeze(1)
        is_turned_R = self.pushes.direction.any(dim=1).view(-1, 1, 1)
        output_RTO = mlp()
        return output_RTO + torch.where(is_turned_R, turned_RTO, added_RTO).to(output_RTO.dtype)


@torch.no_grad()
def write(
    language_model: LanguageModel, block: int, pushed: Pushed, prompt: list[int], seeds: list[int], sampling: Sampling
) -> Tensor:
    """Continue ``prompt`` in every row, [R, T]; rows with the same seed differ by what is pushed alone."""
    ids_RT = torch.tensor([prompt] * len(seeds))
    for step in range(sampling.max_tokens):
        with language_model.stand_in({block: pushed}):
            logits_RV = language_model.logits(ids_RT)[:, -1]
        noise = {seed: gumbel_noise(seed, step, logits_RV.shape[1]) for seed in set(seeds)}
        noise_RV = torch.stack([noise[seed] for seed in seeds])
        chosen = choose(logits_RV, [set(ids) for ids in ids_RT.tolist()], [sampling] * len(seeds), noise_RV)
        ids_RT = torch.cat([ids_RT, torch.tensor(chosen).unsqueeze(1)], dim=1)
    return ids_RT


@torch.no_grad()
def score(language_model: LanguageModel, block: int, pushed: Pushed, ids_RT: Tensor, start: int) -> Scores:
    """Score the tokens from ``start`` on."""
    untouched_RTV = language_model.logits(ids_RT)[:, start - 1 : -1].log_softmax(dim=-1)
    with language_model.stand_in({block: pushed}):
        pushed_RTV = language_model.logits(ids_RT)[:, start - 1 : -1].log_softmax(dim=-1)
    kl_RT = F.kl_div(pushed_RTV, untouched_RTV, log_target=True, reduction="none").sum(dim=-1).clamp_min(0)
    written_RT = ids_RT[:, start:].to(untouched_RTV.device)
    loss_RT = -untouched_RTV.gather(2, written_RT.unsqueeze(2))[..., 0]
    return Scores(kl_RT.mean(dim=1), loss_RT.mean(dim=1))


def self_similarity(written_RT: Tensor) -> float:
    """Mean cosine between the token counts of different texts: 1 where all say the same, and for single texts."""
    if len(written_RT) < 2:
        return 1.0
    counts_RV = F.normalize(F.one_hot(written_RT).sum(dim=1).float(), dim=1)
    cosines_RR = counts_RV @ counts_RV.T
    pairs = len(written_RT) * (len(written_RT) - 1)
    return float((cosines_RR.sum() - cosines_RR.diagonal().sum()) / pairs)
