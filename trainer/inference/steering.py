"""Steering: one prompt continued without edits (baseline) and with edits to the gate (steered), in one batch.

A sample needs four rows: each variant's text, computed without and with the edits. Every token is thus compared with
the other variant's prediction after the same text. While both variants have the same text, two rows are enough.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

from mxd.trainer.config.steering import Edit, GateTest, Sampling, SteeringConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.edits import EditPlan, GateCheck, LayerEdits, TextProgress
from mxd.trainer.inference.generation import (
    RowBatch,
    SamplingState,
    SequenceState,
    StepOutput,
    TokenComparison,
    run_alone,
)
from mxd.trainer.inference.results import (
    VARIANTS,
    DoneEvent,
    Reason,
    RoutedExpert,
    StartEvent,
    SteeringFigures,
    SteeringStep,
    TokenEvent,
    Variant,
)
from mxd.trainer.inference.units import Units, edit_units
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import TokenStream, prompt_ids
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_disjoint_layers, check_fits

EXPERTS_SHOWN = 8


@dataclass(eq=False)
class SteeredText:
    """One variant's text of one sample, with its two rows."""

    variant: Variant
    sample: int
    ids: list[int]
    own: SequenceState
    """Row of the text under its own variant."""
    counterpart: SequenceState
    """Row of the same text under the other variant."""
    stream: TokenStream
    progress: TextProgress
    text: str = ""
    reason: Reason | None = None
    watched: list[float] = field(default_factory=list)
    """Probability mass of the watched tokens at each new token."""
    events: list[TokenEvent] = field(default_factory=list)

    @property
    def new_tokens(self) -> int:
        return len(self.ids) - self.progress.prompt_tokens

    def push(self, token: int, sampling: Sampling, end_tokens: frozenset[int]) -> str:
        self.ids.append(token)  # the rows hold the same list
        piece = self.stream.push(token)
        self.text += piece
        self.progress.note(self.text, len(self.ids) - 1)
        if token in end_tokens:
            self.reason = "end-of-text"
        elif any(stop and stop in self.text for stop in sampling.stop):
            self.reason = "stop"
        elif self.new_tokens >= sampling.max_tokens:
            self.reason = "length"
        return piece

    def fork(self, batch: RowBatch) -> None:
        own, counterpart = (SequenceState(self.ids, row.edits, self.progress) for row in (self.own, self.counterpart))
        assert self.own.sampler is not None
        own.sampler = replace(self.own.sampler, counterpart=counterpart)
        self.own.sampler = None  # the twin keeps this row as its counterpart
        batch.fork([(self.own, own), (self.counterpart, counterpart)])
        self.own, self.counterpart = own, counterpart


@dataclass
class Steering:
    """One request: joins a batch, samples its tokens from each step, and removes the rows of texts that end."""

    language_model: LanguageModel
    run: Run
    config: SteeringConfig
    baseline: Mapping[int, LayerEdits]
    steered: Mapping[int, LayerEdits]
    """Block -> its sparse layer with the edits; ``baseline`` itself if there are none."""
    prompt: list[int]
    variants: tuple[Variant, ...] = VARIANTS
    """Variants that are written; each is compared with the other in any case."""
    watched: tuple[int, ...] = ()
    """Tokens whose probability mass each text records."""
    texts: list[SteeredText] = field(init=False)

    def __post_init__(self) -> None:
        generation = getattr(self.language_model.module, "generation_config", None)
        configured = getattr(generation, "eos_token_id", None)
        ids = configured if isinstance(configured, list) else [configured, self.language_model.tokenizer.eos_token_id]
        self._end_tokens = frozenset(int(token) for token in ids if isinstance(token, int))
        self._started = time.monotonic()
        self.texts = [text for sample in range(self.config.sampling.samples) for text in self._sample_texts(sample)]

    @classmethod
    def prepare(
        cls,
        language_model: LanguageModel,
        runs: Sequence[Run],
        config: SteeringConfig,
        units: Units | None = None,
        prompt: Sequence[int] | None = None,
    ) -> Self:
        """Check a request against the language model and the runs, of which the first is steered.

        ``units`` are those of the edited and tested experts; by default those saved with the runs, see ``edit_units``.
        ``prompt`` has the token ids of the prompt, if it has been tokenised.

        Raises:
            TooLongError: prompt and new tokens exceed the language model's context length.
            NotFoundError: an edit names a run that is not among ``runs``.
            UserError: an edit names an unknown expert, a run belongs to another language model, two runs replace the
                same layer, the steered run has no such K, or the prompt has no such position.
        """
        for run in runs:
            check_fits(language_model, run)
        plans = edit_plans(runs, config.edits, units_without_index(runs, config) if units is None else units)
        text = config.prompt if prompt is None else prompt
        ids = prompt_ids(language_model, text, config.sampling.max_tokens, runs[0].config.text.start_token)
        if (last := max(config.positions or (), default=0)) >= len(ids):
            raise UserError(f"Unknown token position {last}. The prompt has tokens 0 to {len(ids) - 1}.")
        baseline, steered = {}, {}
        for run in runs:
            block = run.config.layer
            # config.k applies to the steered run; runs of other layers keep their K.
            sparse_layer = run.at_k(config.k if run is runs[0] else None).to(language_model.device_of(block))
            baseline[block] = LayerEdits(sparse_layer, config.mode, EditPlan((), {}))
            steered[block] = LayerEdits(sparse_layer, config.mode, plans[block])
        # Without edits both variants share one row, so that they are bit-identical.
        return cls(language_model, runs[0], config, baseline, steered if config.edits else baseline, ids)

    def alone(self) -> Self:
        """This request without its baseline: each text has one row and is compared with itself."""
        return replace(self, baseline=self.steered, variants=("steered",))

    @property
    def finished(self) -> bool:
        return all(text.reason for text in self.texts)

    def join(self, batch: RowBatch) -> Iterator[SteeringStep]:
        """Compute the prompt, once per variant, and sample the first tokens."""
        ids = list(self.prompt)  # one list for both variants, so that they share the blocks before the first edit
        prompts = [SequenceState(ids, self.baseline, self._progress())]
        if self.steered is not self.baseline:
            prompts.append(SequenceState(ids, self.steered, self._progress()))
        step = batch.join(prompts, [(int(row.edits is not self.baseline), row) for row in self.rows()])
        yield StartEvent(len(self.prompt), self.config.sampling.max_tokens)
        yield from self.advance(batch, step)

    def advance(self, batch: RowBatch, step: StepOutput) -> Iterator[SteeringStep]:
        """Sample the next token of each text that has not ended; remove the rows of those that end from ``batch``."""
        growing = [text for text in self.texts if not text.reason]
        before = self.rows()
        tokens = [self._push(text, step.next_tokens[text.own], step.experts[text.own]) for text in growing]
        for twin, text in pairwise(growing):
            shares_rows = text.own is twin.counterpart
            if shares_rows and not text.reason and text.ids[-1] != twin.ids[-1]:
                text.fork(batch)
        for text in growing:
            if text.reason:
                text.own.sampler = None  # the row may stay as a counterpart
        remaining = set(self.rows())
        batch.leave([row for row in before if row not in remaining])
        yield from tokens
        if self.finished:
            reasons = {text.variant: text.reason or "length" for text in self.texts if text.sample == 0}
            baseline, steered = (reasons.get(variant, "length") for variant in VARIANTS)
            tokens_written = sum(text.new_tokens for text in self.texts)
            figures = SteeringFigures.of_tokens(event for text in self.texts for event in text.events)
            yield DoneEvent(baseline, steered, tokens_written, time.monotonic() - self._started, figures)

    def of_variant(self, variant: Variant) -> list[SteeredText]:
        """Texts of a variant, by sample."""
        return [text for text in self.texts if text.variant == variant]

    def rows(self) -> list[SequenceState]:
        rows = [row for text in self.texts if not text.reason for row in (text.own, text.counterpart)]
        return list(dict.fromkeys(rows))

    def _sample_texts(self, sample: int) -> Iterator[SteeredText]:
        """The texts of a sample. They share their rows until they differ."""
        sampling, shared_ids = self.config.sampling, list(self.prompt)
        shared_progress = self._progress()
        baseline = SequenceState(shared_ids, self.baseline, shared_progress)
        is_edited = self.steered is not self.baseline
        steered = SequenceState(shared_ids, self.steered, shared_progress) if is_edited else baseline
        for variant in self.variants:
            own, other = (baseline, steered) if variant == "baseline" else (steered, baseline)
            own.sampler = SamplingState(sampling, sampling.seed + sample, other, self.run.config.layer, self.watched)
            is_first = variant == self.variants[0]
            ids, progress = (shared_ids, shared_progress) if is_first else (list(self.prompt), self._progress())
            stream = TokenStream(self.language_model.tokenizer, ids)
            yield SteeredText(variant, sample, ids, own, other, stream, progress)

    def _progress(self) -> TextProgress:
        conditions = [edit.when for edit in self.config.edits if edit.when is not None]
        stop_texts = frozenset(each.until for each in conditions if each.until is not None)
        only = None if self.config.positions is None else frozenset(self.config.positions)
        return TextProgress(len(self.prompt), stop_texts, self.config.scope, only)

    def _push(self, text: SteeredText, comparison: TokenComparison, experts: tuple[RoutedExpert, ...]) -> TokenEvent:
        sign = 1 if text.variant == "steered" else -1
        position, piece = text.new_tokens, text.push(comparison.id, self.config.sampling, self._end_tokens)
        text.watched.append(comparison.watched)
        event = TokenEvent(
            variant=text.variant,
            sample=text.sample,
            position=position,
            id=comparison.id,
            text=piece,
            probability=math.exp(comparison.log_probability),
            delta_log_probability=sign * (comparison.log_probability - comparison.counterpart_log_probability),
            kl=comparison.kl,
            alternatives=comparison.alternatives,
            other_alternatives=comparison.counterpart_alternatives,
            experts=experts[:EXPERTS_SHOWN],
            reason=text.reason,
        )
        text.events.append(event)
        return event


def steer(
    language_model: LanguageModel, run: Run | Sequence[Run], config: SteeringConfig, units: Units | None = None
) -> Iterator[SteeringStep]:
    """Continue a prompt without and with edits; yield ``Started``, each ``TokenEvent``, then ``Done``. ``run`` is the
    steered run, or several of different layers with the steered one first. Raises UserError as ``Steering.prepare``;
    raised by this call, before the first event."""
    runs = [run] if isinstance(run, Run) else list(run)
    return run_alone(language_model, Steering.prepare(language_model, runs, config, units))


def units_without_index(runs: Sequence[Run], config: SteeringConfig) -> Units:
    """Units of a request's experts without a database; the first run is steered."""
    named = {run.name: run for run in runs}
    return edit_units(config, runs[0].name, lambda name: named[name].units if name in named else {})


def edit_plans(runs: Sequence[Run], edits: Sequence[Edit], units: Units) -> dict[int, EditPlan]:
    """Check edits; return block -> the edits of its run. Edits without a run belong to the first.

    Raises:
        NotFoundError: an edit names a run that is not among ``runs``.
        UserError: an edit names an unknown expert, a gate test cannot be computed, or two runs replace the same layer.
    """
    named = {run.name: run for run in runs}
    unknown = [name for edit in edits for name in edit.runs if name not in named]
    if unknown:
        raise NotFoundError(f"An edit names the run '{unknown[0]}', which is not loaded. Loaded: {', '.join(named)}.")
    check_disjoint_layers(runs)
    plans: dict[int, EditPlan] = {}
    for run in runs:
        own = tuple(edit for edit in edits if (edit.run or runs[0].name) == run.name)
        checks = tuple(
            tuple(_gate_check(test, run, named[test.run or run.name], units) for test in edit.when.gates)
            if edit.when
            else ()
            for edit in own
        )
        last = run.layer.config.num_experts - 1
        if unknown_ids := [edit.expert for edit in own if edit.expert > last]:
            raise UserError(f"Unknown expert {unknown_ids[0]}. This run has experts 0 to {last}.")
        own_units = {edit.expert: units[run.name][edit.expert] for edit in own}
        plans[run.config.layer] = EditPlan(own, own_units, checks if any(checks) else ())
    return plans


def _gate_check(test: GateTest, edited: Run, tested: Run, units: Units) -> GateCheck:
    last = tested.layer.config.num_experts - 1
    if test.expert > last:
        raise UserError(f"Unknown expert {test.expert}. {tested.name} has experts 0 to {last}.")
    if test.level == "median":
        raise UserError(
            f"The median activation of expert {test.expert} of {tested.name} is unknown. "
            f"Run 'mxd index {tested.name}', or give the level in units."
        )
    block = None if tested is edited else tested.config.layer
    if block is not None and block > edited.config.layer:
        raise UserError(
            f"An edit of layer {edited.config.layer} cannot depend on {tested.name}, whose layer {block} is computed "
            "later. Test an expert of the same layer or of an earlier one."
        )
    return GateCheck(test.expert, test.level * units[tested.name][test.expert], test.above is not None, block)
