"""Statistics and top examples of a single expert, read from the index.

Mean of what an expert adds to the residual stream at its active tokens: a steering vector for programs that add
vectors.

Shapes: T tokens, I input width, O output width, W width of the residual stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from sqlalchemy import Engine, and_, select
from sqlalchemy.orm import Session
from torch import Tensor

from mxd.trainer.analysis.ablation import get_indexed_run
from mxd.trainer.analysis.results import Match, TokenEffect, stored_matches
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.database.column_types import ACTIVE, TOKEN_IDS
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AblationRecord, ExampleRecord, IndexRecord, RunRecord, SequenceRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.devices import in_float64
from mxd.trainer.utils.display import ShortRepr
from mxd.trainer.utils.snapshot import (
    UNKNOWN,
    Block,
    Histogram,
    Lines,
    Origin,
    Snapshot,
    Table,
    Token,
    activation_shade,
    plain,
)

TOKENS_AROUND_PEAK = 16
"""Tokens shown on either side of an example's peak in a snapshot."""
TOP_TOKENS_SHOWN = 8
STATISTICS = ("density", "mean_activation", "max_activation", "p99", "entropy", "histogram_high")
"""Fields of an ``Expert`` that are columns of ``ExpertRecord``."""


@dataclass(frozen=True)
class TopExample:
    """A sequence in which the expert is active."""

    tokens: tuple[str, ...]
    """Texts of the T tokens. Joined, they are the sequence."""
    activations: tuple[float, ...]
    """Activation at each of the T tokens; 0 where the expert is inactive."""
    position: int
    """Index of the token with the largest activation."""

    @property
    def activation(self) -> float:
        """Largest activation."""
        return self.activations[self.position]

    def shaded(self, max_activation: float, named: str) -> list[Token]:
        """Tokens around the peak, with activations relative to ``max_activation``; ``named`` is the expert in tips."""
        start, end = max(0, self.position - TOKENS_AROUND_PEAK), self.position + TOKENS_AROUND_PEAK + 1
        window = list(enumerate(zip(self.tokens, self.activations, strict=True)))[start:end]
        return [
            Token(
                text,
                activation_shade(value / max_activation),
                f"{plain(text)}\n{named}\nActivation {value:.4f}",
                index == self.position,
                value,
            )
            if value > 0
            else Token(text.lstrip(" ") if index == start else text)
            for index, (text, value) in window
        ]


@dataclass(frozen=True, repr=False)
class Expert(ShortRepr):
    """Statistics and top examples of an expert. Notebooks render it as HTML."""

    run: str
    expert: int
    label: str | None
    """Label in the dashboard: the user's, else an automatic one; None if there is none."""
    density: float
    """Share of indexed tokens on which the expert is active."""
    mean_activation: float
    """Mean activation over the expert's active tokens."""
    max_activation: float
    """Largest activation."""
    p99: float
    """99th percentile of the activation, the unit of strength in edits."""
    entropy: float
    """Entropy of the distribution of active tokens, in bits."""
    top_tokens: tuple[tuple[str, int], ...]
    """Most frequent active tokens with their counts, most frequent first."""
    examples: tuple[TopExample, ...]
    """Examples with the largest activations, largest first."""
    recurrence: tuple[Match, ...] = ()
    """Best match in each other run, by ``mxd recurrence``; empty if it was not measured."""

    histogram: tuple[int, ...] = ()
    """Counts of the activation in equal bins from 0 to ``histogram_high``."""
    histogram_high: float = 0.0
    promoted: tuple[TokenEffect, ...] = ()
    """Next tokens that the expert makes more probable; empty unless ``mxd ablate`` or the dashboard measured them."""
    suppressed: tuple[TokenEffect, ...] = ()

    def snapshot(self, origin: Origin = UNKNOWN) -> Snapshot:
        """Statistics, top tokens, promoted tokens and examples with tokens shaded by activation."""
        facts = [
            ("density", f"{self.density:.3%}"),
            ("mean activation", f"{self.mean_activation:.3f}"),
            ("99th percentile", f"{self.p99:.3f}"),
            ("maximum", f"{self.max_activation:.3f}"),
            ("token entropy", f"{self.entropy:.2f} bits"),
        ]
        if self.recurrence:
            times = sum(match.found for match in self.recurrence)
            facts.append(("found again", f"in {times} of {len(self.recurrence)} other runs"))
        tokens = " · ".join(f"{plain(text)} {count}" for text, count in self.top_tokens[:TOP_TOKENS_SHOWN])
        facts += [("most frequent tokens", tokens)] if tokens else []
        blocks: list[Block] = []
        if self.promoted:
            blocks.append(Table(("promotes", "suppresses"), [(_changes(self.promoted), _changes(self.suppressed))]))
        blocks.append(example_lines(self.examples, self.max_activation, f"Expert {self.named}"))
        if any(self.histogram):
            blocks.append(Histogram("Active tokens by activation (log scale)", self.histogram, self.histogram_high))
        subtitle = f"Expert {self.expert} of {origin.titled(self.run)}"
        note = "Examples are the strongest of the indexed text. Stronger colours mean stronger gate activations."
        return Snapshot(self.label or f"Expert {self.expert}", subtitle, blocks, facts, note, origin)

    @property
    def named(self) -> str:
        """Number, with the label if there is one."""
        return f"{self.expert} ({self.label})" if self.label else str(self.expert)

    def _repr_html_(self) -> str:
        return self.snapshot()._repr_html_()


def example_lines(examples: Sequence[TopExample], max_activation: float, named: str) -> Lines:
    """Examples as lines of a snapshot, with tokens shaded relative to ``max_activation``."""
    texts = [(f"{each.activation:.3f}", each.shaded(max(max_activation, 1e-12), named)) for each in examples]
    return Lines("Strongest examples", texts)


def _changes(effects: Sequence[TokenEffect]) -> str:
    return " · ".join(f"{plain(effect.text)} {effect.change:+.2f}" for effect in effects[:TOP_TOKENS_SHOWN])


def load_expert(session: Session, run: Run, expert_id: int, label: str | None, examples: int) -> Expert:
    """Read an expert's statistics and its top ``examples`` from the index. Raises NotFoundError if the run is not
    indexed, or has no such expert."""
    indexed = select(RunRecord.id).join(IndexRecord, IndexRecord.run_id == RunRecord.id)
    run_id = session.scalar(indexed.where(RunRecord.name == run.name))
    if run_id is None:
        raise NotFoundError(f"{run.name} is not indexed. Run 'mxd index {run.name}'.")
    record = session.get(ExpertRecord, (run_id, expert_id))
    if record is None:
        last = run.layer_config.num_experts - 1
        raise NotFoundError(f"Unknown expert {expert_id}. {run.name} has experts 0 to {last}.")
    measured = session.get(AblationRecord, (record.run_id, expert_id))
    return Expert(
        run=run.name,
        expert=expert_id,
        label=label,
        **{name: getattr(record, name) for name in STATISTICS},
        top_tokens=tuple((token_texts(run.tokenizer, [token])[0], count) for token, count in record.top_tokens),
        examples=_read_examples(session, record, run, examples),
        recurrence=stored_matches(session, record.run_id, expert_id),
        histogram=tuple(record.histogram),
        promoted=_effects(run, measured.promoted if measured else ()),
        suppressed=_effects(run, measured.suppressed if measured else ()),
    )


def _effects(run: Run, stored: Sequence[Sequence[float]]) -> tuple[TokenEffect, ...]:
    effects = ((int(token), change) for token, change in stored)
    return tuple(TokenEffect(token, token_texts(run.tokenizer, [token])[0], change) for token, change in effects)


def _read_examples(session: Session, record: ExpertRecord, run: Run, limit: int) -> tuple[TopExample, ...]:
    table = ExampleRecord
    rows = session.execute(
        select(table, SequenceRecord.token_ids)
        .join(SequenceRecord, and_(SequenceRecord.run_id == table.run_id, SequenceRecord.sequence == table.sequence))
        .where(table.run_id == record.run_id, table.expert == record.expert, table.bin == 0)
        .order_by(table.rank)
        .limit(limit)
    )
    found = []
    for example, token_ids in rows:
        tokens = token_texts(run.tokenizer, np.frombuffer(token_ids, TOKEN_IDS).tolist())
        activations = [0.0] * len(tokens)
        for position, activation, _ in np.frombuffer(example.active, ACTIVE).tolist():
            activations[position] = activation
        found.append(TopExample(tuple(tokens), tuple(activations), example.position))
    return tuple(found)


class MeanOutput(NamedTuple):
    expert: int
    vector_W: Tensor
    """Mean of what the block adds to the residual stream because of the expert, float32 on the CPU."""
    tokens: int
    """Number of active tokens averaged."""


@torch.no_grad()
def mean_outputs(
    run: Run,
    experts: Sequence[int],
    language_model: LanguageModel,
    database: Engine,
    callbacks: Callbacks = NO_CALLBACKS,
) -> list[MeanOutput]:
    """Average what a block adds because of each expert, over all active tokens of its stored examples' sequences.
    Raises UserError if the run is not indexed, an expert is unknown or dead, or the language model is another one."""
    check_fits(language_model, run)
    index = run.config.layer
    layer, means = run.layer.to(language_model.device_of(index)), []
    for done, expert in enumerate(experts):
        callbacks.check_cancelled()
        sums, tokens = list[Tensor](), 0
        for ids in _sequences_of(run, expert, database):
            x_TI = language_model.capture(index, torch.tensor([ids])).inputs_for(layer).float()
            routing = layer.route(x_TI)
            active_TK = (routing.indices_TK == expert) & (routing.activations_TK > 0)
            own = Routing(routing.activations_TK * active_TK, routing.indices_TK)
            output_TO = layer.contribution(layer.dense_output(x_TI), own)
            added_TW = language_model.additions.of_sequence(index, ids, output_TO)
            active_T = active_TK.any(1).to(added_TW.device)
            sums.append(in_float64(added_TW[active_T]).sum(0))
            tokens += int(active_T.sum())
        if tokens == 0:
            raise UserError(
                f"Expert {expert} of '{run.name}' is not active on its stored examples. Index the run again."
            )
        total_W = torch.stack(sums).sum(0)
        means.append(MeanOutput(expert, (total_W / tokens).float().cpu(), tokens))
        callbacks.on_progress(done + 1, len(experts), "")
    return means


def _sequences_of(run: Run, expert: int, database: Engine) -> list[list[int]]:
    """Token ids of all sequences with stored examples of an expert."""
    if not 0 <= expert < run.layer_config.num_experts:
        raise UserError(f"Unknown expert {expert}. '{run.name}' has experts 0 to {run.layer_config.num_experts - 1}.")
    with Session(database) as session:
        record = get_indexed_run(session, run.name)
        same = and_(SequenceRecord.run_id == ExampleRecord.run_id, SequenceRecord.sequence == ExampleRecord.sequence)
        query = (
            select(SequenceRecord.sequence, SequenceRecord.token_ids)
            .join(ExampleRecord, same)
            .where(ExampleRecord.run_id == record.id, ExampleRecord.expert == expert)
        )
        packed = {row.sequence: bytes(row.token_ids) for row in session.execute(query)}
    if not packed:
        raise UserError(f"Expert {expert} of '{run.name}' is dead: it has no active tokens. Choose another one.")
    return [np.frombuffer(packed[sequence], TOKEN_IDS).tolist() for sequence in sorted(packed)]
