"""Privacy fine-tuning: runs, passages and a retain set in, new weights and measurements out.

The original runs are not changed. The work is done step by step, so that a server can do other work in between. Nothing
is written before everything has been measured.

Shapes: S sequences, L tokens of a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from mxd.trainer.config.privacy import ProtectConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_compatible_runs
from mxd.trainer.training.privacy.metrics import (
    compare_tokens,
    confidence_and_losses,
    measure_confidence,
    text_losses,
)
from mxd.trainer.training.privacy.optimizer import PrivacyData, PrivacyOptimizer
from mxd.trainer.training.privacy.passages import EncodedTexts, Passage, drop_overlapping, encode, variations_of
from mxd.trainer.training.privacy.relearning import relearn
from mxd.trainer.training.privacy.replacement import ReplacementModel, score_all
from mxd.trainer.training.privacy.results import (
    Confidence,
    ConfidenceComparison,
    EvalPoint,
    PrivacyBound,
    PrivacyResult,
    RetainLoss,
    TokenConfidence,
)
from mxd.trainer.utils.bootstrap import Bootstrap, Floats
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks


def retain_bound(theta: float, vocabulary: int, retained: float, measured: float) -> PrivacyBound:
    """Bound for losses in nats."""
    uniform = math.log(vocabulary)
    return PrivacyBound(theta, uniform, (1 - theta) / theta * (uniform - retained), measured)


RESAMPLES = 1000
UNPROTECTED = "unprotected"
"""Kind of the variation that holds passages to be left alone."""


@dataclass(frozen=True)
class ProtectionOutcome:
    """New weights and their measurements."""

    model: ReplacementModel
    result: PrivacyResult
    increase_S: Floats
    """Loss increase on each sequence of the test part, in nats per token."""


class Protection:
    """Privacy fine-tuning of some runs on some passages.

    Raises:
        UserError: the runs, the passages or the retain set cannot be used.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        runs: Sequence[Run],
        names: Sequence[str],
        passages: Sequence[Passage],
        retain_SL: Tensor,
        config: ProtectConfig,
        unprotected: Sequence[Passage] = (),
    ) -> None:
        check_compatible_runs(runs)
        self._unprotected = unprotected
        self.config, self._passages, self._names = config, passages, names
        self.runs, self._language_model = runs, language_model
        self._original = ReplacementModel.from_runs(language_model, runs)
        self._model = self._original.copy()
        self._encode = partial(
            encode, language_model, skip_tokens=config.skip_tokens, start_token=runs[0].config.text.start_token
        )
        encoded = self._encode([passage.text for passage in passages])
        disjoint_SL = drop_overlapping(retain_SL, encoded)
        self._left_out = len(retain_SL) - len(disjoint_SL)
        self._data = PrivacyData.split(encoded, disjoint_SL)
        self._optimizer = PrivacyOptimizer(self._model, self._data, config)

    @property
    def initial(self) -> EvalPoint:
        """Measurements before the first step."""
        return self._optimizer.eval_points[0]

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return self._optimizer.steps

    def step(self) -> EvalPoint:
        """Take one optimisation step. Returns the latest measurements.

        Raises:
            UserError: a loss is NaN or infinite.
        """
        return self._optimizer.step()

    def outcome(self) -> ProtectionOutcome:
        """Weights of the best step and all their measurements.

        Raises:
            UserError: no step is better than the original runs.
        """
        best_step = self._optimizer.restore_best().step
        passages = self._data.passages
        comparison = self._compare(passages)
        retained, increase_S = self._retained()
        vocabulary = self._vocabulary()
        result = PrivacyResult(
            runs=tuple(self._names),
            parents=tuple(run.name for run in self.runs),
            theta=self.config.theta,
            loss=self.config.loss,
            learning_rate=self.config.learning_rate,
            vocabulary=vocabulary,
            passages=len(passages),
            steps=self._optimizer.steps,
            best_step=best_step,
            eval_points=tuple(self._optimizer.eval_points),
            protected=comparison,
            variations=self._variations(),
            retained=retained,
            bound=retain_bound(self.config.theta, vocabulary, retained.after, self._passage_loss(comparison.after)),
            relearning=relearn(self._original, self._model, passages, self.config),
            passage_tokens=self._passage_tokens() if self.config.store_passages else (),
        )
        return ProtectionOutcome(self._model, result, increase_S)

    def _vocabulary(self) -> int:
        logits_PV, _ = next(self._model.predictions(self._data.passages.select(slice(0, 1))))
        return int(logits_PV.shape[-1])

    def _passage_loss(self, confidence: Confidence) -> float:
        return {"kl-from-uniform": confidence.divergence, "missing-entropy": confidence.missing_entropy}[
            self.config.loss
        ]

    def _compare(self, texts: EncodedTexts) -> ConfidenceComparison:
        return ConfidenceComparison(measure_confidence(self._original, texts), measure_confidence(self._model, texts))

    def _variations(self) -> dict[str, ConfidenceComparison]:
        """Confidence on variations of the passages, except those that are too short."""
        min_tokens, tokenizer = self.config.skip_tokens + 1, self._language_model.tokenizer
        texts_by_kind = variations_of(self._passages) | {UNPROTECTED: [text.text for text in self._unprotected]}
        long_enough = {
            kind: [text for text in texts if len(tokenizer(text, add_special_tokens=False)["input_ids"]) >= min_tokens]
            for kind, texts in texts_by_kind.items()
        }
        return {kind: self._compare(self._encode(texts)) for kind, texts in long_enough.items() if texts}

    def _passage_tokens(self) -> tuple[tuple[TokenConfidence, ...], ...]:
        start_token = self.runs[0].config.text.start_token
        before, after = self._original.layers, self._model.layers
        return tuple(
            tuple(compare_tokens(self._language_model, before, after, passage.text, start_token))
            for passage in self._passages
        )

    def _retained(self) -> tuple[RetainLoss, Floats]:
        test = score_all(self._data.test_SL)
        original_model = ReplacementModel(self._language_model, {})
        before, before_S = confidence_and_losses(self._original, test)
        after, after_S = confidence_and_losses(self._model, test)
        increase_S = after_S - before_S
        retained = RetainLoss(
            tokens=self._data.test_SL.numel(),
            left_out=self._left_out,
            original=float(text_losses(original_model, test).mean()),
            before=float(before_S.mean()),
            after=float(after_S.mean()),
            loss_increase=Bootstrap(len(increase_S), RESAMPLES, self.config.seed).mean(increase_S),
            confidence=ConfidenceComparison(before, after),
        )
        return retained, increase_S


def run_protection(protection: Protection, callbacks: Callbacks = NO_CALLBACKS) -> ProtectionOutcome:
    """Take all steps and measure the result.

    Raises:
        CancelledError: the task was cancelled; nothing was written.
        UserError: no step is better than the original runs, or a loss is NaN or infinite.
    """
    for step in range(1, protection.config.steps + 1):
        callbacks.check_cancelled("Cancelled; nothing was written.")
        callbacks.on_progress(step, protection.config.steps, format_eval_point(protection.step()))
    callbacks.check_cancelled("Cancelled; nothing was written.")
    return protection.outcome()


def format_eval_point(point: EvalPoint) -> str:
    """Short progress note."""
    return f"confidence distance {point.protected.confidence_distance:.3f}, {point.loss_increase:+.3f} nats elsewhere"
