"""Protecting passages: runs and text in, new weights and what was measured out. The runs stay as they are.

It is done a step at a time, so that a server can do other work in between. Nothing is written before all is measured.

Shapes: S sequences, L tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from trainer.evaluation.intervals import Bootstrap, Floats
from trainer.in_place import refuse_apart
from trainer.language_model import LanguageModel
from trainer.privacy.certificate import Certificate
from trainer.privacy.descent import Checked, Descent, Material
from trainer.privacy.measures import Certainty, Compared, certainty, losses
from trainer.privacy.newton import Stopped, only_layer, take_newton_step
from trainer.privacy.passages import Encoded, Passage, encode, said_otherwise, without
from trainer.privacy.placed import Placed, whole
from trainer.privacy.relearning import relearn
from trainer.privacy.result import Protected, Retained, bound_of
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.protect_config import ProtectConfig
from trainer.run import Run

RESAMPLES = 1000


@dataclass(frozen=True)
class Outcome:
    """New weights, and what was measured of them."""

    placed: Placed
    result: Protected
    added_S: Floats
    """Loss that each sequence of the other text has gained, in nats a token."""


class Protection:
    """Passages being protected.

    Raises:
        UserError: the runs, the passages or the other text cannot be used.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        runs: Sequence[Run],
        names: Sequence[str],
        passages: Sequence[Passage],
        retained_SL: Tensor,
        config: ProtectConfig,
    ) -> None:
        refuse_apart(runs)
        self.config, self._passages, self._names = config, passages, names
        self.runs, self._language_model = runs, language_model
        self._original = Placed.of(language_model, runs)
        self._placed = self._original.copied()
        if config.newton is not None:
            only_layer(self._placed)
        encoded = encode(language_model, [passage.text for passage in passages], config.after)
        kept_SL = without(retained_SL, encoded)
        self._left_out = len(retained_SL) - len(kept_SL)
        self._material = Material.split(encoded, kept_SL)
        self._descent = Descent(self._placed, self._material, config)
        self._certificate: Certificate | None = None

    @property
    def begins(self) -> Checked:
        """What is found before the first step."""
        return self._descent.path[0]

    @property
    def taken(self) -> int:
        """Steps so far."""
        return self._descent.taken

    def descend(self) -> Checked:
        """Take one step of descent; what was found at the last one that was looked at.

        Raises:
            UserError: the losses are no finite numbers any more.
        """
        return self._descent.step()

    def take_newton_step(self, progress: Progress = silent, should_stop: ShouldStop = never) -> None:
        """Take the Newton step that the settings ask for.

        Raises:
            UserError: it was stopped.
        """
        assert self.config.newton is not None
        step = take_newton_step(self._placed, self._material, self.config, self.config.newton, progress, should_stop)
        self._certificate = step.certificate

    def outcome(self) -> Outcome:
        """The best step's weights, and all that is measured of them.

        Raises:
            UserError: no step has made anything better.
        """
        kept = 1 if self._certificate is not None else self._descent.take_best().step
        protected, placed = self._material.passages, self._placed
        compared = self._compared(protected)
        retained, added_S = self._retained()
        vocabulary = self._vocabulary()
        result = Protected(
            runs=tuple(self._names),
            began_as=tuple(run.name for run in self.runs),
            theta=self.config.theta,
            loss=self.config.loss,
            learning_rate=self.config.learning_rate,
            vocabulary=vocabulary,
            passages=len(protected),
            steps=1 if self._certificate is not None else self._descent.taken,
            kept_step=kept,
            path=tuple(self._descent.path),
            protected=compared,
            otherwise=self._otherwise(),
            retained=retained,
            bound=bound_of(self.config.theta, vocabulary, retained.after, self._loss_of(compared.after)),
            relearning=relearn(self._original, placed, protected, self.config),
            certificate=self._certificate,
        )
        return Outcome(placed, result, added_S)

    def _vocabulary(self) -> int:
        logits_PV, _ = next(self._placed.predictions(self._material.passages.some(slice(0, 1))))
        return int(logits_PV.shape[-1])

    def _loss_of(self, found: Certainty) -> float:
        """L_K, whichever it is."""
        return {"kl-from-uniform": found.divergence, "missing-entropy": found.missing_entropy}[self.config.loss]

    def _compared(self, texts: Encoded) -> Compared:
        return Compared(certainty(self._original, texts), certainty(self._placed, texts))

    def _otherwise(self) -> dict[str, Compared]:
        """The passages in other words; those that are too short for any prediction to count are left out."""
        shortest, tokenizer = self.config.after + 1, self._language_model.tokenizer
        found = {
            kind: [text for text in texts if len(tokenizer(text, add_special_tokens=False)["input_ids"]) >= shortest]
            for kind, texts in said_otherwise(self._passages).items()
        }
        encoded = partial(encode, self._language_model, after=self.config.after)
        return {kind: self._compared(encoded(texts)) for kind, texts in found.items() if texts}

    def _retained(self) -> tuple[Retained, Floats]:
        text = whole(self._material.measure)
        untouched = Placed(self._language_model, {})
        before_S, after_S = losses(self._original, text), losses(self._placed, text)
        added_S = after_S - before_S
        measured = Retained(
            tokens=self._material.measure.numel(),
            left_out=self._left_out,
            original=float(losses(untouched, text).mean()),
            before=float(before_S.mean()),
            after=float(after_S.mean()),
            added=Bootstrap(len(added_S), RESAMPLES, self.config.seed).mean(added_S),
            certainty=self._compared(text),
        )
        return measured, added_S


def carry_out(protection: Protection, progress: Progress = silent, should_stop: ShouldStop = never) -> Outcome:
    """All steps, one after the other, and what came of them.

    Raises:
        Stopped: somebody asked for it; nothing was written.
        UserError: no step has made anything better, or the losses are no finite numbers any more.
    """
    if protection.config.newton is not None:
        protection.take_newton_step(progress, should_stop)
    else:
        for done in range(1, protection.config.steps + 1):
            if should_stop():
                raise Stopped
            progress(done, protection.config.steps, note_of(protection.descend()))
    if should_stop():
        raise Stopped
    return protection.outcome()


def note_of(checked: Checked) -> str:
    """How far it is, in a few words."""
    return f"confidence distance {checked.protected.confidence_distance:.3f}, {checked.added:+.3f} nats elsewhere"
