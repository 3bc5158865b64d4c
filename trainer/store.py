"""The store: every table that the trainer writes, and how to open it.

The trainer owns these tables and is the only one that writes them; the backend reads them. What people add (labels,
notes) lives in the backend's own tables beside these. SQLite by default, in WAL, or PostgreSQL: readers never wait for
a writer and see an index of contexts either whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    DateTime,
    Engine,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    delete,
    update,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from trainer.errors import UserError
from trainer.migrations import CHAIN
from trainer.opening import connect, earlier_version
from trainer.packing import PackedActive, PackedCounts, PackedPairs, PackedTokenIds
from trainer.search_text import delete_search, prepare_search
from trainer.tables import COUNT, AutomaticLabelRecord, Base, RoutedRecord
from trainer.versions import check_version, prepare

IN_MEMORY = "sqlite://"
"""URL of a store that is gone with its process."""


def sqlite_url(data: Path) -> str:
    """URL of the store that lives in the data folder ``data``."""
    return f"sqlite:///{(data / 'mxd.sqlite').resolve()}"


def utc_now() -> datetime:
    """The time now, aware, in UTC."""
    return datetime.now(UTC)


class RunRecord(Base):
    """One fitted (or being fitted) layer. The weights are in its run directory, under the same name."""

    __tablename__ = "runs"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    status: Mapped[str] = mapped_column(String(16))
    """``training``, ``stopped``, ``finished`` or ``failed``."""
    error: Mapped[str | None] = mapped_column(Text)
    language_model: Mapped[str] = mapped_column(Text)
    layer: Mapped[int]
    method: Mapped[str] = mapped_column(String(32))
    activation: Mapped[str] = mapped_column(String(32))
    num_experts: Mapped[int]
    k: Mapped[int]
    input_width: Mapped[int]
    hidden_width: Mapped[int]
    output_width: Mapped[int]
    parameters: Mapped[int] = mapped_column(COUNT)
    text: Mapped[str] = mapped_column(Text)
    seed: Mapped[int]
    context: Mapped[int]
    tokens_wanted: Mapped[int] = mapped_column(COUNT)
    tokens_done: Mapped[int] = mapped_column(COUNT)
    config: Mapped[dict[str, Any]] = mapped_column(JSON)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class MetricRecord(Base):
    """What was measured at one step of fitting."""

    __tablename__ = "metrics"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    tokens: Mapped[int] = mapped_column(COUNT)
    normalised_mse: Mapped[float]
    dead_share: Mapped[float]
    l0: Mapped[float]
    largest_usage: Mapped[float]
    tokens_per_second: Mapped[float]
    seconds: Mapped[float]
    # What follows is measured more rarely, and of methods whose experts are matrices alone: trainer.expert_ranks.
    normalised_rank: Mapped[float | None]
    stable_rank: Mapped[float | None]
    smallest_singular_value: Mapped[float | None]
    smallest_scaling: Mapped[float | None]


class IndexRecord(Base):
    """One pass over text that produced a run's experts and contexts. A run has at most one."""

    __tablename__ = "indexes"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    seed: Mapped[int]
    tokens: Mapped[int] = mapped_column(COUNT)
    context: Mapped[int]
    experts_active: Mapped[int]
    contexts: Mapped[int] = mapped_column(COUNT)
    normalised_mse: Mapped[float]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class ExpertRecord(Base):
    """Statistics of one expert over the indexed text. Every expert has a row, dead ones too."""

    __tablename__ = "experts"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    active_tokens: Mapped[int] = mapped_column(COUNT)
    usage: Mapped[float]
    """Share of indexed tokens on which it is active."""
    mean: Mapped[float]
    """Mean coefficient where active; 0 for a dead expert."""
    largest: Mapped[float]
    p99: Mapped[float]
    entropy: Mapped[float]
    """Bits, of the distribution of tokens it is active on."""
    top_tokens: Mapped[list[list[int]]] = mapped_column(PackedPairs)
    """[[token id, count], …], most frequent first."""
    histogram: Mapped[list[int]] = mapped_column(PackedCounts)
    """Counts in equal bins from 0 to ``histogram_high``."""
    histogram_high: Mapped[float]
    """A power of two, at least ``largest``; 0 for a dead expert."""
    intervals: Mapped[list[list[float]]] = mapped_column(JSON)
    """[[low, high, active tokens], …] from the highest interval to the lowest; interval i of a context is entry i-1."""
    # Of InfluenceRecord, once more so that they can be sorted by; 0 until measured, and output_share not after.
    added_loss: Mapped[float] = mapped_column(default=0.0)
    kl_up: Mapped[float] = mapped_column(default=0.0)
    output_share: Mapped[float] = mapped_column(default=0.0)
    input_dependence: Mapped[float] = mapped_column(default=0.0)

    # Each index serves one sort on screen, by itself: the cursor (value, expert) is a range scan of it.
    __table_args__ = (
        Index("experts_by_usage", "run_id", "usage", "expert"),
        Index("experts_by_mean", "run_id", "mean", "expert"),
        Index("experts_by_largest", "run_id", "largest", "expert"),
        Index("experts_by_entropy", "run_id", "entropy", "expert"),
        Index("experts_by_added_loss", "run_id", "added_loss", "expert"),
        Index("experts_by_kl_up", "run_id", "kl_up", "expert"),
        Index("experts_by_output_share", "run_id", "output_share", "expert"),
        Index("experts_by_input_dependence", "run_id", "input_dependence", "expert"),
    )


class InfluenceRecord(Base):
    """What an expert does and how much it matters, measured on its contexts; see ``trainer.influence.summary``."""

    __tablename__ = "influences"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    contexts: Mapped[int]
    added_loss: Mapped[float | None]
    kl_off: Mapped[float]
    kl_up: Mapped[float]
    kl_other: Mapped[float]
    kl_direction: Mapped[float]
    other: Mapped[int]
    output_share: Mapped[float]
    input_dependence: Mapped[float]
    promoted: Mapped[list[list[float]]] = mapped_column(JSON)
    """[[token id, change of log p in nats], …], largest first."""
    suppressed: Mapped[list[list[float]]] = mapped_column(JSON)


class SteeringDoseRecord(Base):
    """What turning one expert up by one strength did to texts; see ``trainer.steering_evaluation.build``."""

    __tablename__ = "steering_doses"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    """``none``, ``expert``, ``other`` or ``direction``."""
    strength: Mapped[float] = mapped_column(primary_key=True)
    kl: Mapped[float]
    loss: Mapped[float]
    self_similarity: Mapped[float]
    promoted_share: Mapped[float]


class MeasurementRecord(Base):
    """With which settings what stands in other tables was measured of a run, so that it can be done again."""

    __tablename__ = "measurements"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    command: Mapped[str] = mapped_column(String(32), primary_key=True)
    """``influence`` or ``evaluate-steering``."""
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)


class SequenceRecord(Base):
    """A token sequence of the indexed text, stored once however many contexts point at it."""

    __tablename__ = "sequences"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    """Its place in the indexed text, from 0."""
    token_ids: Mapped[bytes] = mapped_column(PackedTokenIds)
    """Little-endian unsigned 32-bit token ids."""


class ContextRecord(Base):
    """One token of a stored sequence on which an expert is active."""

    __tablename__ = "contexts"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    interval: Mapped[int] = mapped_column(primary_key=True)
    """0: among the largest. 1, 2, …: kept at random from that interval of coefficients, highest first."""
    rank: Mapped[int] = mapped_column(primary_key=True)
    """Order within the interval, from 0."""
    sequence: Mapped[int]
    position: Mapped[int]
    coefficient: Mapped[float] = mapped_column(Float)
    active: Mapped[bytes] = mapped_column(PackedActive)
    """Where the expert is active in the sequence: ``packing.ACTIVE``, by position."""

    # Rows lie in the order of their key: an expert's contexts are read from one place, and there is no second copy of
    # the key.
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012


class EvaluationRecord(Base):
    """What a run, or several runs at once, add to the loss on one text. The newest replaces the one before."""

    __tablename__ = "evaluations"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    subject: Mapped[str] = mapped_column(Text)
    """Name of the run, or of the runs that were put in place together, joined by `` + ``."""
    text: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(String(32))
    """Of the text."""
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)
    """The ``EvaluateConfig``."""
    weights: Mapped[str] = mapped_column(String(64))
    """Digest of the weights that were measured."""
    result: Mapped[dict[str, Any]] = mapped_column(JSON)
    sequences: Mapped[bytes] = mapped_column(LargeBinary)
    """Little-endian float32 differences of loss in nats, a sequence each: what intervals over seeds are made of."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (Index("evaluations_of_subject", "subject", "fingerprint", unique=True),)


class ProbeRecord(Base):
    """How well a run's experts tell the classes of one file of labels apart."""

    __tablename__ = "probes"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    labels: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(String(32))
    """Of the file of labels."""
    level: Mapped[str] = mapped_column(String(8))
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)
    """The ``ProbeConfig``."""
    result: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (Index("probes_of_run", "run_id", "fingerprint", "level", unique=True),)


def open_store(url: str) -> Engine:
    """Open the store at an SQLAlchemy ``url``; in a new one, the tables are made.

    Raises:
        UserError: it is not a store, is of another version, or cannot be opened.
    """
    engine = connect(url)
    try:
        prepare(engine, CHAIN, _create_tables)
    except UserError:
        engine.dispose()
        raise
    return engine


def _create_tables(connection: Connection) -> None:
    # One of before the tables said their version themselves, but with the same tables, is taken as it is.
    check_version(earlier_version(connection) or CHAIN.newest, CHAIN, connection.dialect.name)
    Base.metadata.create_all(connection)
    prepare_search(connection)


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """A session whose changes are committed together on leaving, or not at all."""
    with Session(engine) as session, session.begin():
        if engine.dialect.name == "sqlite":
            # Python's driver begins no transaction for what creates or drops tables: a drop that came first would be
            # there by itself. At once, because whoever reads first and is overtaken by a writer can write no more.
            session.connection().exec_driver_sql("BEGIN IMMEDIATE")
        yield session


def delete_index(session: Session, run_id: int) -> None:
    """Delete what an index of the run wrote, in the caller's transaction."""
    delete_search(session, run_id)
    of_labels = (RoutedRecord, AutomaticLabelRecord)
    of_experts = (MeasurementRecord, SteeringDoseRecord, InfluenceRecord, ContextRecord, SequenceRecord, ExpertRecord)
    for table in (*of_labels, *of_experts, IndexRecord):
        session.execute(delete(table).where(table.run_id == run_id))


def delete_influences(session: Session, run_id: int) -> None:
    """Delete what was measured of the influence of a run's experts, in the caller's transaction."""
    session.execute(delete(InfluenceRecord).where(InfluenceRecord.run_id == run_id))
    zeros = dict.fromkeys(("added_loss", "kl_up", "output_share", "input_dependence"), 0.0)
    session.execute(update(ExpertRecord).where(ExpertRecord.run_id == run_id).values(**zeros))
