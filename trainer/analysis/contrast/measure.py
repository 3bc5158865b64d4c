"""Contrast of two texts: route both, count the active tokens of each expert in each document, compare.

Shapes: D documents, N experts, E tested experts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mxd.trainer.analysis.contrast.counting import NamedText, TextCounter, choose_unit, tokenize_text
from mxd.trainer.analysis.contrast.rate_ratios import DocumentCounts, Mask, RateRatios, q_values, rate_ratios
from mxd.trainer.analysis.contrast.results import (
    SIGNIFICANT_Q,
    ChanceLevel,
    Contrast,
    ContrastedExpert,
    ContrastedText,
    ContrastExamples,
)
from mxd.trainer.analysis.indexing.activations import Ints
from mxd.trainer.analysis.indexing.collect import layer_input, route_in_parts
from mxd.trainer.config import ContrastConfig
from mxd.trainer.data.activations import SEQUENCES_PER_FORWARD
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import start_token_id
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks


def contrast(
    run: Run,
    a: NamedText,
    b: NamedText,
    config: ContrastConfig,
    language_model: LanguageModel,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Contrast:
    """Find the experts whose activation density differs between two texts.

    Raises:
        UserError: a text is too short, or no expert is active often enough.
        CancelledError: the task was cancelled.
    """
    measurement = ContrastMeasurement(run, a, b, config, language_model)
    while not measurement.is_done:
        callbacks.check_cancelled()
        measurement.step(SEQUENCES_PER_FORWARD)
        callbacks.on_progress(measurement.tokens_done, measurement.tokens, run.name)
    return measurement.result()


class ContrastMeasurement:
    """A contrast in steps, so that a server can do other work between them."""

    def __init__(
        self, run: Run, a: NamedText, b: NamedText, config: ContrastConfig, language_model: LanguageModel
    ) -> None:
        """Read and tokenise both texts.

        Raises:
            UserError: a text is too short, or the run does not fit the language model.
        """
        check_fits(language_model, run)
        self.run, self.config = run, config
        self._language_model = language_model
        context_length = min(run.config.text.context_length, language_model.max_tokens)
        start_token = start_token_id(language_model.tokenizer, run.config.text.start_token)
        texts = [
            tokenize_text(text, language_model.tokenizer, start_token, config.tokens, context_length) for text in (a, b)
        ]
        self.unit = choose_unit(texts)
        self._sides = [TextCounter(text, text.units(self.unit), run.layer.config.num_experts, config) for text in texts]

    @property
    def tokens(self) -> int:
        """Number of tokens of both texts."""
        return sum(side.text.tokens for side in self._sides)

    @property
    def tokens_done(self) -> int:
        """Number of routed tokens."""
        return sum(side.tokens_done for side in self._sides)

    @property
    def is_done(self) -> bool:
        """True if both texts are routed."""
        return all(side.is_done for side in self._sides)

    def step(self, sequences: int) -> None:
        """Route the next sequences."""
        side = next(side for side in self._sides if not side.is_done)
        batch = side.next_batch(sequences)
        layer = self.run.config.layer
        sparse_layer = self.run.layer.to(self._language_model.device_of(layer))
        x_TI = layer_input(sparse_layer, layer, self._language_model, batch.token_ids_SL)
        side.add(batch, route_in_parts(sparse_layer, x_TI))

    def result(self) -> Contrast:
        """Compare the texts.

        Raises:
            UserError: no expert is active often enough.
        """
        counts, in_a_D = self._counts()
        ratios = rate_ratios(counts, in_a_D)
        is_tested_N = ratios.enough(self.config.min_tokens, self.config.min_units)
        if not is_tested_N.any():
            raise UserError(
                f"No expert is active on {self.config.min_tokens} tokens of {self.config.min_units} {self.unit}s. "
                "Give longer texts, or lower the two limits."
            )
        experts = _described(ratios, np.flatnonzero(is_tested_N))
        significant = [each for each in experts if each.is_found]
        found_a = [each for each in significant if each.ratio.value > 1]
        found_b = [each for each in significant if each.ratio.value < 1]
        shown = [each.expert for part in (found_a, found_b) for each in part[: self.config.shown]]
        a, b = (ContrastedText(s.text.name, s.text.documents, s.num_units, s.text.tokens) for s in self._sides)
        return Contrast(
            run=self.run.name,
            a=a,
            b=b,
            unit=self.unit,
            num_experts=counts.num_experts,
            min_tokens=self.config.min_tokens,
            min_units=self.config.min_units,
            tested=len(experts),
            found_a=len(found_a),
            found_b=len(found_b),
            chance=_chance_level(counts, in_a_D, is_tested_N, self.config) if self.config.shuffles else None,
            experts=tuple(experts),
            examples={expert: ContrastExamples(*(tuple(s.examples(expert)) for s in self._sides)) for expert in shown},
        )

    def _counts(self) -> tuple[DocumentCounts, Mask]:
        a, b = (side.counts() for side in self._sides)
        counts = DocumentCounts(
            tokens_D=np.concatenate([a.tokens_D, b.tokens_D]),
            document_P=np.concatenate([a.document_P, b.document_P + len(a.tokens_D)]),
            expert_P=np.concatenate([a.expert_P, b.expert_P]),
            count_P=np.concatenate([a.count_P, b.count_P]),
            activation_P=np.concatenate([a.activation_P, b.activation_P]),
            num_experts=a.num_experts,
        )
        return counts, np.arange(len(counts.tokens_D)) < len(a.tokens_D)


def _described(ratios: RateRatios, experts_E: Ints) -> list[ContrastedExpert]:
    """Describe the tested experts: first those found, by the end of their interval that is nearer to 1."""
    a, b = ratios.a, ratios.b
    q_E = q_values(ratios.p_value_N[experts_E])
    ratio_N, low_N, high_N = (np.exp(values) for values in (ratios.log_ratio_N, ratios.low_N, ratios.high_N))
    described = [
        ContrastedExpert(
            expert=expert,
            active_a=int(a.active_N[expert]),
            active_b=int(b.active_N[expert]),
            units_a=int(a.units_N[expert]),
            units_b=int(b.units_N[expert]),
            density_a=float(a.active_N[expert] / a.tokens),
            density_b=float(b.active_N[expert] / b.tokens),
            ratio=Interval(float(ratio_N[expert]), float(low_N[expert]), float(high_N[expert])),
            activation_ratio=_activation_ratio(ratios, expert),
            p_value=float(ratios.p_value_N[expert]),
            q_value=q_value,
        )
        for expert, q_value in zip(experts_E.tolist(), q_E.tolist(), strict=True)
    ]
    return sorted(described, key=lambda each: (not each.is_found, -each.bound, each.p_value, each.expert))


def _activation_ratio(ratios: RateRatios, expert: int) -> float | None:
    a, b = ratios.a, ratios.b
    if not b.activation_N[expert]:
        return None
    return float(a.activation_N[expert] / a.tokens / (b.activation_N[expert] / b.tokens))


@dataclass(frozen=True)
class _Shuffle:
    num_found: int
    covered: float


def _chance_level(counts: DocumentCounts, in_a_D: Mask, is_tested_N: Mask, config: ContrastConfig) -> ChanceLevel:
    """Repeat the comparison with random assignments of documents to the texts."""
    generator = np.random.default_rng(config.seed)
    shuffles = [_shuffle(counts, generator.permutation(in_a_D), is_tested_N) for _ in range(config.shuffles)]
    numbers = [shuffle.num_found for shuffle in shuffles]
    return ChanceLevel(
        shuffles=len(shuffles),
        mean_found=float(np.mean(numbers)),
        most_found=max(numbers),
        shuffles_with_any=sum(number > 0 for number in numbers),
        covered=float(np.mean([shuffle.covered for shuffle in shuffles])),
    )


def _shuffle(counts: DocumentCounts, in_a_D: Mask, is_tested_N: Mask) -> _Shuffle:
    ratios = rate_ratios(counts, in_a_D)
    includes_1 = (ratios.low_N <= 0) & (ratios.high_N >= 0)
    is_found = q_values(ratios.p_value_N[is_tested_N]) <= SIGNIFICANT_Q
    return _Shuffle(int(is_found.sum()), float(includes_1[is_tested_N].mean()))
