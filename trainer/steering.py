"""Steering: the same prompt continued as it is and with edits to the gate, side by side in one batch.

A sample takes four rows: the text of each arm, without and with the edits. So every token is compared with what the
other arm would have expected after the very same text, not after a text that has long since gone its own way. As long
as both arms have written the same text, two rows are all four.

Shapes: B rows, R texts, V vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from trainer.comparison import Compared
from trainer.config import Edit, Sampling, SteeringConfig
from trainer.edits import EditPlan, LayerEdits
from trainer.errors import NotFoundError, UserError
from trainer.generation import Row, RowBatch, Step, Touches, Writer
from trainer.language_model import LanguageModel
from trainer.routing import RoutedExpert, check_fits, prompt_ids
from trainer.run import Run
from trainer.steps import ARMS, Arm, Done, NewToken, Reason, Started, SteeredGeneration, SteeringStep
from trainer.token_stream import TokenStream

__all__ = ["Done", "NewToken", "Started", "Steering", "SteeringStep", "Units", "generate", "saved_units", "steer"]

Units = Mapping[str, Mapping[int, float]]
"""Run -> expert -> its 99th percentile, the unit of ``add`` and ``set``; 1 where it is not known."""

EXPERTS_SHOWN = 8


@dataclass(eq=False)
class _Continuation:
    """The text of one arm of one sample as it grows, in its two rows."""

    arm: Arm
    sample: int
    ids: list[int]
    own: Row
    """Grows as the arm says: with the edits where it is steered."""
    other: Row
    """The same text, with the edits the other way round."""
    stream: TokenStream
    start: int
    text: str = ""
    reason: Reason | None = None

    @property
    def new_tokens(self) -> int:
        return len(self.ids) - self.start

    def push(self, token: int, sampling: Sampling, ends: frozenset[int]) -> str:
        self.ids.append(token)  # its rows hold the same list
        piece = self.stream.push(token)
        self.text += piece
        if token in ends:
            self.reason = "end-of-text"
        elif any(stop and stop in self.text for stop in sampling.stop):
            self.reason = "stop"
        elif self.new_tokens >= sampling.max_tokens:
            self.reason = "length"
        return piece

    def has_parted(self, twin: _Continuation) -> bool:
        """Whether it goes on in another way than the one whose rows it still shares."""
        return not self.reason and self.own is twin.other and self.ids[-1] != twin.ids[-1]

    def part(self, batch: RowBatch) -> None:
        """Take rows of its own."""
        own, other = (Row(self.ids, row.edits, row.touches) for row in (self.own, self.other))
        assert self.own.writer is not None
        own.writer, self.own.writer = replace(self.own.writer, other=other), None  # the twin reads the old rows on
        batch.fork([(self.own, own), (self.other, other)])
        self.own, self.other = own, other


@dataclass
class Steering:
    """One request: joins a batch of rows, takes its tokens from each step, and says which rows are done."""

    language_model: LanguageModel
    run: Run
    config: SteeringConfig
    plain: Mapping[int, LayerEdits]
    edited: Mapping[int, LayerEdits]
    prompt: list[int]
    arms: tuple[Arm, ...] = ARMS
    """Whose texts are written; each is compared with what the other would have expected in any case."""
    continuations: list[_Continuation] = field(init=False)

    def __post_init__(self) -> None:
        self._ends = _end_tokens(self.language_model)
        self._started = time.monotonic()
        samples = range(self.config.sampling.samples)
        self.continuations = [each for sample in samples for each in self._continuations(sample)]

    @classmethod
    def prepare(
        cls, language_model: LanguageModel, runs: Sequence[Run], config: SteeringConfig, units: Units
    ) -> Steering:
        """Check a request against the language model and the runs; the first run is the one that is steered.

        Raises:
            TooLongError: prompt and new tokens do not fit the language model.
            NotFoundError: an edit names a run that is not among ``runs``.
            UserError: an edit names an unknown expert, a run was fitted to another language model, two runs are of
                the same layer, or the steered one has no such K.
        """
        plans = _plans(language_model, runs, config.edits, units)
        prompt = prompt_ids(language_model, config.prompt, room=config.sampling.max_tokens)
        # K' is that of the run that is steered; those of other layers keep theirs.
        chosen = [run.at_k(config.k if run is runs[0] else None) for run in runs]
        layers = {
            run.config.layer: layer.to(language_model.device_of(run.config.layer))
            for run, layer in zip(runs, chosen, strict=True)
        }
        nothing = EditPlan((), {})
        plain = {block: LayerEdits(layer, config.apply, nothing) for block, layer in layers.items()}
        edited = {block: LayerEdits(layer, config.apply, plans[block]) for block, layer in layers.items()}
        # Without edits both arms are one, and not only equal up to how some library rounds.
        return cls(language_model, runs[0], config, plain, edited if config.edits else plain, prompt)

    @property
    def finished(self) -> bool:
        """Whether every continuation has ended."""
        return all(continuation.reason for continuation in self.continuations)

    def join(self, batch: RowBatch) -> Iterator[SteeringStep]:
        """Read the prompt, once without and once with the edits, and take the first tokens."""
        ids = list(self.prompt)  # one text, so that it is read once up to the first edited layer
        prompts = [Row(ids, self.plain)]
        if self.edited is not self.plain:
            prompts.append(Row(ids, self.edited, self._touches()))
        rows = self.rows()
        step = batch.join(prompts, [(int(row.edits is not self.plain), row) for row in rows])
        yield Started(len(self.prompt), self.config.sampling.max_tokens)
        yield from self.advance(batch, step)

    def advance(self, batch: RowBatch, step: Step) -> Iterator[SteeringStep]:
        """Take the next token of each continuation that goes on; lets rows of those that end leave ``batch``."""
        going = [it for it in self.continuations if not it.reason]
        before = self.rows()
        taken = [self._taken(it, step.taken[it.own], step.experts[it.own]) for it in going]
        for twin, it in pairwise(going):
            if it.has_parted(twin):
                it.part(batch)
        for it in going:
            if it.reason:
                it.own.writer = None  # the row may stay, to be compared with
        kept = set(self.rows())
        batch.leave([row for row in before if row not in kept])
        yield from taken
        if self.finished:
            yield self._done()

    def rows(self) -> list[Row]:
        """The rows of continuations that go on, each once."""
        rows = [row for it in self.continuations if not it.reason for row in (it.own, it.other)]
        return list(dict.fromkeys(rows))

    def _continuations(self, sample: int) -> Iterator[_Continuation]:
        """The texts of a sample. They share their rows until they differ."""
        tokenizer, start = self.language_model.tokenizer, len(self.prompt)
        first, sampling = list(self.prompt), self.config.sampling
        plain = Row(first, self.plain, self._touches())
        edited = plain if self.edited is self.plain else Row(first, self.edited, self._touches())
        for arm in self.arms:
            own, other = (plain, edited) if arm == "default" else (edited, plain)
            own.writer = Writer(sampling, sampling.seed + sample, start, other, self.run.config.layer)
            ids = first if arm == self.arms[0] else list(self.prompt)
            yield _Continuation(arm, sample, ids, own, other, TokenStream(tokenizer, ids), start)

    def _touches(self) -> Touches:
        config, start = self.config, len(self.prompt)
        only = None if config.positions is None else frozenset(config.positions)
        first = start if config.scope == "generated" and only is None else 0
        return Touches(first, start if config.scope == "prompt" or only is not None else None, only)

    def _taken(self, continuation: _Continuation, compared: Compared, experts: tuple[RoutedExpert, ...]) -> NewToken:
        """Let a continuation grow by a token, and describe it."""
        sign = 1 if continuation.arm == "steered" else -1
        return NewToken(
            arm=continuation.arm,
            sample=continuation.sample,
            position=continuation.new_tokens,
            id=compared.chosen,
            text=continuation.push(compared.chosen, self.config.sampling, self._ends),
            probability=math.exp(compared.log_probability),
            delta_log_probability=sign * (compared.log_probability - compared.other_log_probability),
            kl=compared.kl,
            alternatives=compared.alternatives,
            other_alternatives=compared.other_alternatives,
            experts=experts[:EXPERTS_SHOWN],
        )

    def _done(self) -> Done:
        first = {it.arm: it.reason or "length" for it in self.continuations if it.sample == 0}
        default, steered = (first.get(arm, "length") for arm in ARMS)
        tokens = sum(continuation.new_tokens for continuation in self.continuations)
        return Done(default, steered, tokens, time.monotonic() - self._started)


def steer(
    language_model: LanguageModel, run: Run | Sequence[Run], config: SteeringConfig, units: Units | None = None
) -> SteeredGeneration:
    """Continue a prompt without and with edits; yields ``Started``, then ``NewToken`` as they come, then ``Done``.

    Args:
        run: the run that is steered, or several of different layers, that one first.
        units: run -> expert -> its 99th percentile, the unit of ``add`` and ``set``; by default those saved with the
            runs, and 1 where it is not known.

    Raises:
        UserError: as ``Steering.prepare``; at once, before the first step is asked for.
    """
    runs = [run] if isinstance(run, Run) else list(run)
    prepared = Steering.prepare(language_model, runs, config, saved_units(runs) if units is None else units)
    return SteeredGeneration(config.prompt, _alone(prepared))


def generate(
    language_model: LanguageModel, run: Run | Sequence[Run], config: SteeringConfig, units: Units | None = None
) -> tuple[str, ...]:
    """Continue a prompt with edits: the text of each sample, without the prompt. Arguments and errors as ``steer``."""
    runs = [run] if isinstance(run, Run) else list(run)
    steering = Steering.prepare(language_model, runs, config, saved_units(runs) if units is None else units)
    texts = [""] * config.sampling.samples
    for step in _alone(replace(steering, arms=("steered",))):
        if isinstance(step, NewToken):
            texts[step.sample] += step.text
    return tuple(texts)


def saved_units(runs: Sequence[Run]) -> Units:
    """Units that were saved with runs when they were indexed."""
    return {run.name: run.units for run in runs}


def _alone(steering: Steering) -> Iterator[SteeringStep]:
    batch = RowBatch(steering.language_model)
    yield from steering.join(batch)
    while not steering.finished:
        yield from steering.advance(batch, batch.step())


def _plans(
    language_model: LanguageModel, runs: Sequence[Run], edits: Sequence[Edit], units: Units
) -> dict[int, EditPlan]:
    """Block -> the edits of its run."""
    named = {run.name: run for run in runs}
    unknown = [edit.run for edit in edits if edit.run is not None and edit.run not in named]
    if unknown:
        raise NotFoundError(f"An edit names the run {unknown[0]}, which is not loaded here; name one that is.")
    plans: dict[int, EditPlan] = {}
    written: set[int] = set()
    for run in runs:
        check_fits(language_model, run)
        own = [edit for edit in edits if (edit.run or runs[0].name) == run.name]
        if twice := written.intersection(run.config.layers):
            raise UserError(f"Two of these runs are of layer {min(twice)}; steer one run a layer.")
        written |= set(run.config.layers)
        plans[run.config.layer] = EditPlan.of(own, units.get(run.name, {}), run.layer.config.num_experts)
    return plans


def _end_tokens(language_model: LanguageModel) -> frozenset[int]:
    """Ids after which a text is over."""
    generation = getattr(language_model.module, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    ids = found if isinstance(found, list) else [found, language_model.tokenizer.eos_token_id]
    return frozenset(int(token) for token in ids if isinstance(token, int))
