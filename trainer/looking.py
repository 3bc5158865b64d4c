"""Look at one expert: its statistics and the texts it fires on, as the index has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from trainer.errors import NotFoundError
from trainer.highlighting import Shaded, figures, rows, shaded_text
from trainer.packing import ACTIVE, TOKEN_IDS
from trainer.run import Run
from trainer.store import ContextRecord, ExpertRecord, RunRecord, SequenceRecord, open_store, sqlite_url
from trainer.tables import AutomaticLabelRecord
from trainer.tokens import token_texts

AROUND = 16
"""Tokens shown on either side of a context's peak in a notebook."""


@dataclass(frozen=True)
class ShownContext:
    """A token sequence in which the expert is active."""

    tokens: tuple[str, ...]
    """T texts; joined, they are the sequence."""
    coefficients: tuple[float, ...]
    """T, as the gate gave them; 0 where the expert is not active."""
    position: int
    """Of the peak, from 0."""

    def _shaded(self, largest: float) -> str:
        start, end = max(0, self.position - AROUND), self.position + AROUND + 1
        near = list(enumerate(zip(self.tokens, self.coefficients, strict=True)))[start:end]
        return shaded_text(
            [
                Shaded(text, value / largest, f"{value:.4f}" if value else "", place == self.position)
                for place, (text, value) in near
            ]
        )


@dataclass(frozen=True)
class Expert:
    """One expert of an indexed run. In a notebook it shows itself."""

    run: str
    expert: int
    label: str | None
    """The automatic label that fits best; None where there is none."""
    usage: float
    """Share of indexed tokens on which it is active, from 0 to 1."""
    mean: float
    """Mean coefficient where it is active."""
    largest: float
    p99: float
    """99th percentile of its coefficient: the unit of edits."""
    entropy: float
    """Bits, of the distribution of tokens it is active on."""
    top_tokens: tuple[tuple[str, int], ...]
    """(text, how often), those it is active on most often first."""
    contexts: tuple[ShownContext, ...]
    """Of its largest coefficients, the largest first."""

    def _repr_html_(self) -> str:
        """Statistics and contexts, the tokens shaded by the coefficient."""
        named = [("usage", f"{self.usage:.4%}"), ("mean", f"{self.mean:.3f}"), ("99th percentile", f"{self.p99:.3f}")]
        named += [("token entropy", f"{self.entropy:.2f} bits")]
        tokens = ", ".join(f"{text!r} {count}" for text, count in self.top_tokens[:6])
        named += [("fires most often on", tokens)] if tokens else []
        title = [(f"Expert {self.expert} of {self.run}", self.label or "no label")]
        largest = max(self.largest, 1e-12)
        lines = [(f"{it.coefficients[it.position]:.3f}", it._shaded(largest)) for it in self.contexts]
        return figures(title) + figures(named) + rows(("coefficient", "context"), lines)


def expert(run: Run, number: int, *, data: Path | str = "data", store: str | None = None, contexts: int = 8) -> Expert:
    """What the index says of an expert.

    Args:
        run: the run, which need not have its language model at hand.
        number: of the expert, from 0.
        data: folder whose store is read.
        store: SQLAlchemy URL of another store.
        contexts: how many of its contexts at most.

    Raises:
        NotFoundError: the store has no index of the run, or the run no such expert.
        UserError: the store cannot be opened.
    """
    engine = open_store(store or sqlite_url(Path(data)))
    try:
        with Session(engine) as session:
            record = _record(session, run, number)
            return Expert(
                run=run.name,
                expert=number,
                label=_label(session, record),
                usage=record.usage,
                mean=record.mean,
                largest=record.largest,
                p99=record.p99,
                entropy=record.entropy,
                top_tokens=tuple((_text(run, [token]), count) for token, count in record.top_tokens),
                contexts=_contexts(session, record, run, contexts),
            )
    finally:
        engine.dispose()


def _record(session: Session, run: Run, number: int) -> ExpertRecord:
    found = session.scalar(
        select(ExpertRecord)
        .join(RunRecord, RunRecord.id == ExpertRecord.run_id)
        .where(RunRecord.name == run.name, ExpertRecord.expert == number)
    )
    if found is None:
        raise NotFoundError(
            f"The store has no expert {number} of {run.name}; index the run first, and choose one from 0 to "
            f"{run.layer_config.num_experts - 1}."
        )
    return found


def _label(session: Session, record: ExpertRecord) -> str | None:
    table = AutomaticLabelRecord
    mine = and_(table.run_id == record.run_id, table.expert == record.expert)
    return session.scalar(select(table.label).where(mine).order_by(table.balanced_accuracy.desc()).limit(1))


def _contexts(session: Session, record: ExpertRecord, run: Run, most: int) -> tuple[ShownContext, ...]:
    table = ContextRecord
    found = session.execute(
        select(table, SequenceRecord.token_ids)
        .join(SequenceRecord, and_(SequenceRecord.run_id == table.run_id, SequenceRecord.sequence == table.sequence))
        .where(table.run_id == record.run_id, table.expert == record.expert, table.interval == 0)
        .order_by(table.rank)
        .limit(most)
    )
    return tuple(_context(run, context, token_ids) for context, token_ids in found)


def _context(run: Run, context: ContextRecord, token_ids: bytes) -> ShownContext:
    tokens = token_texts(run.tokenizer, np.frombuffer(token_ids, TOKEN_IDS).tolist())
    coefficients = [0.0] * len(tokens)
    for position, coefficient, _ in np.frombuffer(context.active, ACTIVE).tolist():
        coefficients[position] = coefficient
    return ShownContext(tuple(tokens), tuple(coefficients), context.position)


def _text(run: Run, ids: list[int]) -> str:
    return "".join(token_texts(run.tokenizer, ids))
