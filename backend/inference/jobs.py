"""Jobs for the thread of a language model: routing, predictions, attribution and the start of a generation.

A job is a function of a ``JobContext`` and its own arguments; ``InferenceService.submit`` runs it. The jobs import what
they call, because PyTorch takes seconds to import and browsing does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxd.trainer.config import AblationConfig, ContrastConfig, Edit, SteeringConfig, StrengthSweepConfig
from mxd.trainer.config.analysis import CircuitConfig, FindConfig
from mxd.trainer.errors import TooLongError
from mxd.trainer.utils.callbacks import Callbacks, Steps

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.backend.inference.worker import Generation
    from mxd.trainer.analysis.ablation import AblationResult
    from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck, ExpertAtToken, GroupEffect
    from mxd.trainer.analysis.effects import Examples
    from mxd.trainer.analysis.results import (
        Contrast,
        EditEffect,
        EditPrice,
        ExpertEffect,
        ExpertMap,
        ExpertWrites,
        FoundExperts,
    )
    from mxd.trainer.inference.results import Predictions, Routing
    from mxd.trainer.inference.units import Units
    from mxd.trainer.language_model.model import LanguageModel
    from mxd.trainer.storage.run import Run


class CompletionConfig(SteeringConfig):
    """A steered text without its baseline. It also ends where the language model's context does."""


ROWS_PER_SAMPLE = 4
"""Batch rows of one steered sample: the text of each variant, read with and without the edits."""
ROWS_PER_STRENGTH = 3
"""Batch rows of one sample of a strength sweep: the text with and without the edits, and the control's text."""
ROWS_OF_BASELINE = 2
"""Batch rows of one baseline text of a strength sweep."""


@dataclass(frozen=True)
class JobContext:
    """The language model and the runs that a job works on."""

    language_model: LanguageModel
    runs: Sequence[Run]
    prompt_tokens: int
    """The server's limit on the length of a prompt, in tokens."""
    callbacks: Callbacks
    """Cancels a long task once the client has disconnected."""

    def token_ids(self, text: str) -> list[int]:
        """Token ids of a text with the start token. The jobs pass these on, so that it is tokenised once."""
        from mxd.trainer.language_model.tokenizer import prompt_ids

        ids = prompt_ids(self.language_model, text, start_token=self.runs[0].config.text.start_token)
        if len(ids) > self.prompt_tokens:
            raise TooLongError(
                f"The text is too long: {len(ids):,} tokens with the start token. This server accepts "
                f"{self.prompt_tokens:,}. Shorten the text."
            )
        return ids


def route(context: JobContext, text: str, k: int | None = None) -> tuple[Routing, ...]:
    """Route a text through runs of different layers; ``k`` is the number of active experts per token."""
    from mxd.trainer.inference.routing import route_together

    return route_together(context.language_model, context.runs, context.token_ids(text), k)


def route_with_limit(context: JobContext, text: str, k: int | None = None) -> tuple[tuple[Routing, ...], int]:
    """As ``route``, with the longest prompt in tokens that both the language model and the server accept."""
    return route(context, text, k), min(context.language_model.max_tokens, context.prompt_tokens)


def predict(context: JobContext, text: str, k: int | None = None) -> Predictions:
    from mxd.trainer.inference.routing import predict

    run, *others = context.runs
    return predict(context.language_model, run, context.token_ids(text), k, others)


def direct_effects(context: JobContext, text: str, position: int, k: int | None = None) -> tuple[ExpertEffect, ...]:
    from mxd.trainer.analysis.effects import direct_effects

    return direct_effects(context.language_model, context.runs[0], context.token_ids(text), position, k)


def expert_writes(
    context: JobContext, expert: int, examples: Examples, controls: Sequence[int], units: Mapping[int, float]
) -> ExpertWrites:
    from mxd.trainer.analysis.effects import expert_writes

    return expert_writes(context.language_model, context.runs[0], expert, examples, controls, units)


def related_words(context: JobContext, text: str) -> dict[str, float]:
    """Words that the language model relates to a description, with their relation."""
    return context.language_model.related_words.of(text, context.runs[0].config.text.start_token)


def expert_map(context: JobContext, expert: int) -> ExpertMap:
    from mxd.trainer.analysis.effects import expert_map

    return expert_map(context.language_model, context.runs[0], expert)


def trace(context: JobContext, config: CircuitConfig) -> Circuit:
    from mxd.trainer.analysis.circuits.tracing import trace

    ids = context.token_ids(config.prompt)
    return trace(context.language_model, context.runs, config, context.callbacks, ids)


def check_circuit(context: JobContext, config: CircuitConfig, circuit: Circuit) -> CircuitCheck:
    from mxd.trainer.analysis.circuits.checking import check

    ids = context.token_ids(config.prompt)
    return check(context.language_model, context.runs, config, circuit, context.callbacks, ids)


def ablate(
    context: JobContext, config: CircuitConfig, groups: Sequence[Sequence[ExpertAtToken]], read: Sequence[ExpertAtToken]
) -> tuple[GroupEffect, ...]:
    """Measured effects of ablating groups of experts on the target of a circuit and on the experts that are read."""
    from mxd.trainer.analysis.circuits.checking import ablate

    ids = context.token_ids(config.prompt)
    return ablate(context.language_model, context.runs, config, groups, read, context.callbacks, ids)


def find(context: JobContext, config: FindConfig, units: Units) -> FoundExperts:
    from mxd.trainer.analysis.effect_search import find

    _check_lengths(context, config)
    return find(context.language_model, context.runs, config, units, context.callbacks)


def measure(
    context: JobContext, config: FindConfig, groups: Sequence[Sequence[Edit]], units: Units
) -> tuple[EditEffect, ...]:
    from mxd.trainer.analysis.effect_search import measure

    _check_lengths(context, config)
    return measure(context.language_model, context.runs, config, groups, units, context.callbacks)


def _check_lengths(context: JobContext, config: FindConfig) -> None:
    """Raise TooLongError if a prompt with the longest text after it is too long for this server."""
    longest = max((*config.wanted, *config.unwanted), key=len)
    for prompt in config.prompts:
        context.token_ids(prompt + longest)


SEQUENCES_PER_STEP = 8
"""Size of the steps of a contrast: small, so that other requests wait only briefly."""


def contrast_steps(
    context: JobContext, texts: Sequence[Sequence[str]], config: ContrastConfig
) -> Steps[Callable[[], Contrast]]:
    """Steps of a contrast, and then the function that counts, which needs no language model."""
    from mxd.trainer.analysis.contrast import NamedText, contrast_in_steps, shuffled

    a, b = (NamedText(name, shuffled(documents, config.seed)) for name, documents in zip("AB", texts, strict=True))
    return contrast_in_steps(context.runs[0], a, b, config, context.language_model, SEQUENCES_PER_STEP)


def price_steps(context: JobContext, edits: Sequence[Edit], units: Units) -> Steps[EditPrice]:
    """Steps of a price. Edits without a run belong to the first run."""
    from mxd.trainer.analysis.edit_price import price_in_steps

    return price_in_steps(context.language_model, context.runs, edits, units)


def ablation_steps(context: JobContext, expert: int, database: Engine) -> Steps[AblationResult]:
    """Steps that measure an expert and its random expert, and store the effects at the end."""
    from mxd.trainer.analysis.ablation import ablation_in_steps

    return ablation_in_steps(context.runs[0], AblationConfig(experts=(expert,)), context.language_model, database)


def prepare_generation(context: JobContext, config: SteeringConfig, units: Units) -> Generation:
    """Check a request to steer, to complete a text or to sweep strengths, depending on the class of ``config``."""
    from mxd.trainer.inference.steering import Steering
    from mxd.trainer.inference.strength_sweep import StrengthSweep
    from mxd.trainer.language_model.tokenizer import prompt_ids

    ids = context.token_ids(config.prompt)
    if isinstance(config, CompletionConfig):
        room = context.language_model.max_tokens - len(prompt_ids(context.language_model, ids, new_tokens=1))
        tokens = min(config.sampling.max_tokens, room)
        fitted = config.model_copy(update={"sampling": config.sampling.model_copy(update={"max_tokens": tokens})})
        return Steering.prepare(context.language_model, context.runs, fitted, units, ids).alone()
    kind = StrengthSweep.prepare if isinstance(config, StrengthSweepConfig) else Steering.prepare
    return kind(context.language_model, context.runs, config, units, ids)  # type: ignore[arg-type]


def max_rows(config: SteeringConfig) -> int:
    if isinstance(config, CompletionConfig):
        return config.sampling.samples
    if isinstance(config, StrengthSweepConfig):
        return (ROWS_PER_STRENGTH * len(config.strengths) + ROWS_OF_BASELINE) * config.sampling.samples
    return ROWS_PER_SAMPLE * config.sampling.samples
