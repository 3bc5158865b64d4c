"""Steering: the same prompt continued as it is and with edits to the gate, side by side in one batch.

A sample takes four rows: the text of each arm, without and with the edits. So every token is compared with what the
other arm would have expected after the very same text, not after a text that has long since gone its own way.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import Tensor
from torch.nn import functional as F

from trainer.config import Edit, Sampling, SteeringConfig
from trainer.edits import EditPlan, LayerEdits
from trainer.errors import NotFoundError, UserError
from trainer.generation import Row, RowBatch, Step, Touches
from trainer.language_model import LanguageModel
from trainer.routing import RoutedExpert, check_fits, prompt_ids, routed_experts, single_texts
from trainer.run import Run
from trainer.sampling import choose, gumbel_noise
from trainer.token_stream import TokenStream

Arm = Literal["default", "steered"]
Reason = Literal["length", "stop", "end-of-text"]
Units = Mapping[str, Mapping[int, float]]
"""Run -> expert -> its 99th percentile, the unit of ``add`` and ``set``; 1 where it is not known."""

ARMS: tuple[Arm, Arm] = ("default", "steered")
EXPERTS_SHOWN = 8
ALTERNATIVES = 5


class Alternative(NamedTuple):
    """A token that could have come next."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Started:
    """The prompt has been read."""

    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True)
class NewToken:
    """One new token of one arm."""

    arm: Arm
    sample: int
    position: int
    """0 for the first."""
    id: int
    text: str
    """New characters; empty where a character continues in the next token."""
    probability: float
    """Under the arm that chose it, before temperature and the like."""
    delta_log_probability: float
    """log p with the edits − log p without, for this token after this very text, in nats."""
    kl: float
    """KL from this arm's next-token distribution to the other's, after this very text, in nats."""
    alternatives: tuple[Alternative, ...]
    other_alternatives: tuple[Alternative, ...]
    experts: tuple[RoutedExpert, ...]
    """Routing, in the run that is steered, of the token before, which chose this one; edits not counted."""


@dataclass(frozen=True)
class Done:
    """Every continuation has ended."""

    default_reason: Reason
    """Of the first sample."""
    steered_reason: Reason
    tokens: int
    """New tokens of all continuations."""
    seconds: float


SteeringStep = Started | NewToken | Done


@dataclass(eq=False)
class _Continuation:
    """The text of one arm of one sample as it grows, in its two rows."""

    arm: Arm
    sample: int
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
        return len(self.own.ids) - self.start

    def push(self, token: int, sampling: Sampling, ends: frozenset[int]) -> str:
        self.own.ids.append(token)  # the other row holds the same list
        piece = self.stream.push(token)
        self.text += piece
        if token in ends:
            self.reason = "end-of-text"
        elif any(stop and stop in self.text for stop in sampling.stop):
            self.reason = "stop"
        elif self.new_tokens >= sampling.max_tokens:
            self.reason = "length"
        return piece


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
        self.continuations = [self._continuation(arm, sample) for sample in samples for arm in self.arms]

    @classmethod
    def prepare(
        cls, language_model: LanguageModel, runs: Sequence[Run], config: SteeringConfig, units: Units
    ) -> Steering:
        """Check a request against the language model and the runs; the first run is the one that is steered.

        Raises:
            TooLongError: prompt and new tokens do not fit the language model.
            NotFoundError: an edit names a run that is not among ``runs``.
            UserError: an edit names an unknown expert, a run was fitted to another language model, or two runs are
                of the same layer.
        """
        plans = _plans(language_model, runs, config.edits, units)
        prompt = prompt_ids(language_model, config.prompt, room=config.sampling.max_tokens)
        layers = {run.config.layer: run.layer.to(language_model.device) for run in runs}
        nothing = EditPlan((), {})
        plain = {block: LayerEdits(layer, config.apply, nothing) for block, layer in layers.items()}
        edited = {block: LayerEdits(layer, config.apply, plans[block]) for block, layer in layers.items()}
        return cls(language_model, runs[0], config, plain, edited, prompt)

    @property
    def finished(self) -> bool:
        """Whether every continuation has ended."""
        return all(continuation.reason for continuation in self.continuations)

    def join(self, batch: RowBatch) -> Iterator[SteeringStep]:
        """Read the prompt, once without and once with the edits, and take the first tokens."""
        prompts = [Row(list(self.prompt), self.plain), Row(list(self.prompt), self.edited, self._touches())]
        rows = [row for it in self.continuations for row in (it.own, it.other)]
        step = batch.join(prompts, [(int(row.edits is self.edited), row) for row in rows])
        yield Started(len(self.prompt), self.config.sampling.max_tokens)
        yield from self.advance(batch, step, {id(row): place for place, row in enumerate(rows)})

    def advance(self, batch: RowBatch, step: Step, places: Mapping[int, int]) -> Iterator[SteeringStep]:
        """Take the next token of each continuation that goes on; lets rows of those that end leave ``batch``.

        Args:
            places: id of a row -> its place in ``step``.
        """
        going = [it for it in self.continuations if not it.reason]
        experts = routed_experts(*step.last_seen(self.run.config.layer, [places[id(it.own)] for it in going]))
        for continuation, routed in zip(going, experts, strict=True):
            own, other = places[id(continuation.own)], places[id(continuation.other)]
            token = self._choose(continuation, step.logits_BV[own])
            yield self._taken(continuation, token, step.log_p_BV[own], step.log_p_BV[other], routed[:EXPERTS_SHOWN])
        batch.leave([row for it in going if it.reason for row in (it.own, it.other)])
        if self.finished:
            yield self._done()

    def rows(self) -> list[Row]:
        """The rows of continuations that go on."""
        return [row for it in self.continuations if not it.reason for row in (it.own, it.other)]

    def _continuation(self, arm: Arm, sample: int) -> _Continuation:
        ids = list(self.prompt)
        own, other = (self.plain, self.edited) if arm == "default" else (self.edited, self.plain)
        return _Continuation(
            arm,
            sample,
            own=Row(ids, own, self._touches()),
            other=Row(ids, other, self._touches()),
            stream=TokenStream(self.language_model.tokenizer, ids),
            start=len(ids),
        )

    def _touches(self) -> Touches:
        config, start = self.config, len(self.prompt)
        only = None if config.positions is None else frozenset(config.positions)
        first = start if config.scope == "generated" and only is None else 0
        return Touches(first, start if config.scope == "prompt" or only is not None else None, only)

    def _choose(self, continuation: _Continuation, logits_V: Tensor) -> int:
        sampling = self.config.sampling
        noise_V = gumbel_noise(sampling.seed + continuation.sample, continuation.new_tokens, len(logits_V))
        return choose(logits_V, set(continuation.own.ids), sampling, noise_V)

    def _taken(
        self,
        continuation: _Continuation,
        token: int,
        own_V: Tensor,
        other_V: Tensor,
        experts: tuple[RoutedExpert, ...],
    ) -> NewToken:
        """Let a continuation grow by a token, and describe it."""
        sign = 1 if continuation.arm == "steered" else -1
        return NewToken(
            arm=continuation.arm,
            sample=continuation.sample,
            position=continuation.new_tokens,
            id=token,
            text=continuation.push(token, self.config.sampling, self._ends),
            probability=own_V[token].exp().item(),
            delta_log_probability=sign * (own_V[token] - other_V[token]).item(),
            kl=F.kl_div(other_V, own_V, log_target=True, reduction="sum").clamp_min(0).item(),
            alternatives=self._alternatives(own_V),
            other_alternatives=self._alternatives(other_V),
            experts=experts,
        )

    def _alternatives(self, log_p_V: Tensor) -> tuple[Alternative, ...]:
        top = log_p_V.topk(ALTERNATIVES)
        ids: list[int] = top.indices.tolist()
        texts = single_texts(self.language_model, set(ids))
        return tuple(Alternative(i, texts[i], p) for i, p in zip(ids, top.values.exp().tolist(), strict=True))

    def _done(self) -> Done:
        first = {it.arm: it.reason or "length" for it in self.continuations if it.sample == 0}
        default, steered = (first.get(arm, "length") for arm in ARMS)
        tokens = sum(continuation.new_tokens for continuation in self.continuations)
        return Done(default, steered, tokens, time.monotonic() - self._started)


def steer(
    language_model: LanguageModel, run: Run | Sequence[Run], config: SteeringConfig, units: Units | None = None
) -> Iterator[SteeringStep]:
    """Continue a prompt without and with edits; yields ``Started``, then ``NewToken`` as they come, then ``Done``.

    Args:
        run: the run that is steered, or several of different layers, that one first.
        units: run -> expert -> its 99th percentile, the unit of ``add`` and ``set``; 1 where it is not known.

    Raises:
        UserError: as ``Steering.prepare``; at once, before the first step is asked for.
    """
    runs = [run] if isinstance(run, Run) else list(run)
    return _alone(Steering.prepare(language_model, runs, config, units or {}))


def _alone(steering: Steering) -> Iterator[SteeringStep]:
    batch = RowBatch(steering.language_model)
    yield from steering.join(batch)
    while not steering.finished:
        rows = {id(row): place for place, row in enumerate(batch.rows)}
        yield from steering.advance(batch, batch.step(), rows)


def _plans(
    language_model: LanguageModel, runs: Sequence[Run], edits: Sequence[Edit], units: Units
) -> dict[int, EditPlan]:
    """Block -> the edits of its run."""
    named = {run.name: run for run in runs}
    unknown = [edit.run for edit in edits if edit.run is not None and edit.run not in named]
    if unknown:
        raise NotFoundError(f"An edit names the run {unknown[0]}, which is not loaded here; name one that is.")
    plans: dict[int, EditPlan] = {}
    for run in runs:
        check_fits(language_model, run)
        own = [edit for edit in edits if (edit.run or runs[0].name) == run.name]
        if run.config.layer in plans:
            raise UserError(f"Two of these runs are of layer {run.config.layer}; steer one run a layer.")
        plans[run.config.layer] = EditPlan.of(own, units.get(run.name, {}), run.layer.config.num_experts)
    return plans


def _end_tokens(language_model: LanguageModel) -> frozenset[int]:
    """Ids after which a text is over."""
    generation = getattr(language_model.module, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    ids = found if isinstance(found, list) else [found, language_model.tokenizer.eos_token_id]
    return frozenset(int(token) for token in ids if isinstance(token, int))
