"""Optimisation of the privacy objective: theta times the passage loss plus (1 - theta) times the retain loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mxd.trainer.config.privacy import ProtectConfig
from mxd.trainer.errors import UserError
from mxd.trainer.training.privacy.metrics import LOSSES, combine_gradients, measure_confidence, text_losses
from mxd.trainer.training.privacy.passages import EncodedTexts
from mxd.trainer.training.privacy.replacement import Loss, ReplacementModel, next_token_loss, score_all
from mxd.trainer.training.privacy.results import EvalPoint


@dataclass(frozen=True)
class PrivacyData:
    """The passages, and three disjoint parts of the retain set, each [S, L] token ids."""

    passages: EncodedTexts
    train_SL: Tensor
    """Sequences whose loss is part of the objective."""
    validation_SL: Tensor
    """Sequences for selecting the best step."""
    test_SL: Tensor
    """Sequences for the final measurements."""

    @classmethod
    def split(cls, passages: EncodedTexts, ids_SL: Tensor) -> PrivacyData:
        """Use half of the retain set for training, an eighth for validation and the rest for testing.

        Raises:
            UserError: the retain set is too small.
        """
        half, eighth = len(ids_SL) // 2, len(ids_SL) // 8
        if not eighth:
            raise UserError(
                f"The retain set has {len(ids_SL)} sequences without a part of a passage, but at least 8 are needed. "
                "Give more text, or a larger --tokens."
            )
        train_SL, validation_SL, test_SL = ids_SL.split([half, eighth, len(ids_SL) - half - eighth])
        return cls(passages, train_SL, validation_SL, test_SL)


class PrivacyOptimizer:
    """Trains C and the gates of a replacement model."""

    def __init__(self, model: ReplacementModel, data: PrivacyData, config: ProtectConfig) -> None:
        self.model, self.data, self.config = model, data, config
        self.steps = 0
        self._initial, self._best = model.snapshot(), model.snapshot()
        self._optimizer = torch.optim.Adam(model.trainable_parameters(), lr=config.learning_rate)
        self._initial_loss = self._validation_loss()
        self.eval_points = [EvalPoint(0, measure_confidence(model, data.passages), 0.0)]
        self.best = self.eval_points[0]

    @property
    def finished(self) -> bool:
        """True if all steps have been taken."""
        return self.steps >= self.config.steps

    def step(self) -> EvalPoint:
        """Take one step. Returns the latest measurements.

        Raises:
            UserError: a loss is NaN or infinite.
        """
        for parameter, gradient in zip(self.model.trainable_parameters(), self._gradients(), strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        self.steps += 1
        if self.steps % self.config.check_every == 0 or self.finished:
            self._evaluate()
        return self.eval_points[-1]

    def restore_best(self) -> EvalPoint:
        """Load the parameters of the best step.

        Raises:
            UserError: no step is better than the original runs.
        """
        if self.best.step == 0:
            last = self.eval_points[-1]
            raise UserError(
                f"No step reduced the confidence on the passages within a loss increase of "
                f"{self.config.max_added_loss:g} nats elsewhere. The last step has a confidence distance of "
                f"{last.protected.confidence_distance:.3f} and {last.loss_increase:+.3f} nats. Raise --max-added-loss, "
                "or lower --theta or --learning-rate."
            )
        self.model.load(self._best)
        return self.best

    def _gradients(self) -> list[Tensor]:
        """Gradients of the objective, with conflicts between its two parts removed."""
        theta = self.config.theta
        privacy_loss: Loss = lambda logits_PV, _next_P: LOSSES[self.config.loss](logits_PV)  # noqa: E731
        passage_loss, passage_gradients = self.model.gradient(self.data.passages, privacy_loss, theta)
        retain_loss, retain_gradients = self.model.gradient(self._batch(), next_token_loss, 1 - theta)
        if not (math.isfinite(passage_loss) and math.isfinite(retain_loss)):
            raise UserError(f"The loss at step {self.steps + 1} is not finite. Lower --learning-rate.")
        combined = combine_gradients(passage_gradients, retain_gradients)
        changes = zip(self.model.trainable_parameters(), self._initial, strict=True)
        penalties = [self.config.distance_weight * (now.detach() - initial) for now, initial in changes]
        return [gradient + penalty for gradient, penalty in zip(combined, penalties, strict=True)]

    def _batch(self) -> EncodedTexts:
        """Next sequences of the training part, in cycles."""
        train_SL = self.data.train_SL
        count = max(1, self.config.batch_tokens // train_SL.shape[1])
        indices = torch.arange(self.steps * count, (self.steps + 1) * count) % len(train_SL)
        return score_all(train_SL[indices.unique()])

    def _evaluate(self) -> None:
        loss_increase = self._validation_loss() - self._initial_loss
        point = EvalPoint(self.steps, measure_confidence(self.model, self.data.passages), loss_increase)
        self.eval_points.append(point)
        improves = point.protected.confidence_distance < self.best.protected.confidence_distance
        if improves and loss_increase <= self.config.max_added_loss:
            self.best, self._best = point, self.model.snapshot()

    def _validation_loss(self) -> float:
        """Mean loss on the validation part, in nats per token."""
        return float(text_losses(self.model, score_all(self.data.validation_SL)).mean())
