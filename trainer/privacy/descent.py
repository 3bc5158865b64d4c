"""Descent on the weighted objective, a step at a time, so that whoever drives it can show how far it is, or stop."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.errors import UserError
from trainer.privacy.measures import Certainty, certainty, losses
from trainer.privacy.objective import LOSSES, without_conflict
from trainer.privacy.passages import Encoded
from trainer.privacy.placed import Loss, Placed, next_token, whole
from trainer.protect_config import ProtectConfig


@dataclass(frozen=True)
class Material:
    """What is read: the passages, and other text in three parts that have no sequence in common."""

    passages: Encoded
    fit: Tensor
    """Sequences [S, L] whose loss is part of the objective."""
    choose: Tensor
    """By which the step is chosen."""
    measure: Tensor
    """Which is only measured on."""

    @classmethod
    def split(cls, passages: Encoded, ids_SL: Tensor) -> Material:
        """Half of the other text to fit on, an eighth to choose by, the rest to measure on.

        Raises:
            UserError: there is too little of it.
        """
        half, eighth = len(ids_SL) // 2, len(ids_SL) // 8
        if not eighth:
            raise UserError(
                f"There are {len(ids_SL)} sequences of other text without a part of a passage, and at least 8 are "
                "needed; give more text, or a larger --tokens."
            )
        fit, choose, measure = ids_SL.split([half, eighth, len(ids_SL) - half - eighth])
        return cls(passages, fit, choose, measure)


@dataclass(frozen=True)
class Checked:
    """One of the steps among which the best is chosen."""

    step: int
    protected: Certainty
    added: float
    """Loss in nats a token that the text to choose by has gained over the run as it was."""


class Descent:
    """Moves C and the gate of layers that are in place."""

    def __init__(self, placed: Placed, material: Material, config: ProtectConfig) -> None:
        self.placed, self.material, self.config = placed, material, config
        self.taken = 0
        self._begin, self._best = placed.values(), placed.values()
        self._optimizer = torch.optim.Adam(placed.moved(), lr=config.learning_rate)
        self._loss = float(losses(placed, whole(material.choose)).mean())
        self.path = [Checked(0, certainty(placed, material.passages), 0.0)]
        self.best = self.path[0]

    @property
    def finished(self) -> bool:
        """Whether every step has been taken."""
        return self.taken >= self.config.steps

    def step(self) -> Checked:
        """Take one step; what was found at the last step that was looked at.

        Raises:
            UserError: the losses are no finite numbers any more.
        """
        for parameter, gradient in zip(self.placed.moved(), self._gradient(), strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        self.taken += 1
        if self.taken % self.config.check_every == 0 or self.finished:
            self._check()
        return self.path[-1]

    def take_best(self) -> Checked:
        """Put the best step's values into the layers.

        Raises:
            UserError: none is better than where it began.
        """
        if self.best.step == 0:
            last = self.path[-1]
            raise UserError(
                f"No step made the passages less sure and added at most {self.config.most_added:g} nats elsewhere "
                f"(the last: a confidence distance of {last.protected.confidence_distance:.3f}, {last.added:+.3f} "
                "nats); allow more with --most-added, or lower --theta or --learning-rate."
            )
        self.placed.take(self._best)
        return self.best

    def _gradient(self) -> list[Tensor]:
        """Of the objective, without what its two parts would undo of each other."""
        theta = self.config.theta
        away: Loss = lambda logits_PV, _next_P: LOSSES[self.config.loss](logits_PV)  # noqa: E731
        unsure, of_passages = self.placed.gradient(self.material.passages, away, theta)
        kept, of_text = self.placed.gradient(self._batch(), next_token, 1 - theta)
        if not (math.isfinite(unsure) and math.isfinite(kept)):
            raise UserError(f"At step {self.taken + 1} the losses are no finite numbers; lower --learning-rate.")
        combined = without_conflict(of_passages, of_text)
        away_from_begin = zip(self.placed.moved(), self._begin, strict=True)
        pulls = [self.config.distance_weight * (now.detach() - then) for now, then in away_from_begin]
        return [gradient + pull for gradient, pull in zip(combined, pulls, strict=True)]

    def _batch(self) -> Encoded:
        """The next sequences to fit on, from the front again once all have been read."""
        fit_SL = self.material.fit
        count = max(1, self.config.batch // fit_SL.shape[1])
        places = torch.arange(self.taken * count, (self.taken + 1) * count) % len(fit_SL)
        return whole(fit_SL[places.unique()])

    def _check(self) -> None:
        added = float(losses(self.placed, whole(self.material.choose)).mean()) - self._loss
        found = Checked(self.taken, certainty(self.placed, self.material.passages), added)
        self.path.append(found)
        nearer = found.protected.confidence_distance < self.best.protected.confidence_distance
        if nearer and added <= self.config.most_added:
            self.best, self._best = found, self.placed.values()
