"""Tables of the trainer.

Only the trainer writes them; the backend reads them and keeps user annotations in its own tables. The database is
SQLite in WAL mode or PostgreSQL, so readers never wait for writers and see an index completely or not at all.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Float, ForeignKey, Index, Integer, LargeBinary, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from mxd.trainer.storage.database.column_types import PackedActive, PackedTokenIds

COUNT = BigInteger().with_variant(Integer(), "sqlite")
"""Counts that may exceed 2**31. SQLite's integers have 64 bits anyway."""


class Base(DeclarativeBase):
    """Base class of the trainer's tables."""


class RoutedRecord(Base):
    """A sampled sequence of the indexed text with all active experts of each token."""

    __tablename__ = "routed_sequences"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    counts: Mapped[bytes] = mapped_column(LargeBinary)
    """Number of active experts per token; see ``column_types.pack_routed``."""
    experts: Mapped[bytes] = mapped_column(LargeBinary)
    """Active experts token by token, strongest first."""


class AutomaticLabelRecord(Base):
    """An automatic label of an expert, with its scores."""

    __tablename__ = "automatic_labels"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    labeller: Mapped[str] = mapped_column(String(200), primary_key=True)
    """``features``, or the name of the language model that wrote the label."""
    label: Mapped[str] = mapped_column(Text)
    balanced_accuracy: Mapped[float]
    """Balanced accuracy on held-out examples and inactive text; chance is 0.5."""
    precision: Mapped[float | None]
    """Share of tokens matching the label on which the expert is active; None if unknown."""
    recall: Mapped[float | None]
    """Share of active tokens that match the label."""
    test_examples: Mapped[int]
    """Number of held-out examples."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


def utc_now() -> datetime:
    return datetime.now(UTC)


class RunRecord(Base):
    """A trained layer, or one in training. The weights are in the run directory of the same name."""

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
    context_length: Mapped[int]
    target_tokens: Mapped[int] = mapped_column(COUNT)
    trained_tokens: Mapped[int] = mapped_column(COUNT)
    config: Mapped[dict[str, Any]] = mapped_column(JSON)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class MetricRecord(Base):
    """Training metrics of one step."""

    __tablename__ = "metrics"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    tokens: Mapped[int] = mapped_column(COUNT)
    normalized_mse: Mapped[float]
    dead_share: Mapped[float]
    l0: Mapped[float]
    max_density: Mapped[float]
    tokens_per_second: Mapped[float]
    seconds: Mapped[float]
    # Measured less often, and only for methods whose experts are matrices; see mxd.trainer.layers.mxd.
    normalized_rank: Mapped[float | None]
    stable_rank: Mapped[float | None]
    min_singular_value: Mapped[float | None]
    min_scaling: Mapped[float | None]


class IndexRecord(Base):
    """The index of a run: one pass over text that collected expert statistics and examples. At most one per run."""

    __tablename__ = "indexes"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    seed: Mapped[int]
    tokens: Mapped[int] = mapped_column(COUNT)
    context_length: Mapped[int]
    active_experts: Mapped[int]
    examples: Mapped[int] = mapped_column(COUNT)
    normalized_mse: Mapped[float]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class AblationRecord(Base):
    """Ablation and steering effects of an expert, averaged over its active tokens; see
    ``mxd.trainer.analysis.ablation``. Losses and KL divergences are in nats per token."""

    __tablename__ = "ablations"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    examples: Mapped[int]
    loss_increase: Mapped[float | None]
    """Increase of the next token's loss when only this expert is ablated; None if no example has a next token."""
    kl_ablated: Mapped[float]
    kl_amplified: Mapped[float]
    """KL divergence of the next-token distribution when the activation is raised by its 99th percentile."""
    kl_random_expert: Mapped[float]
    """The same of a random expert of similar density, on the same tokens."""
    kl_random_direction: Mapped[float]
    """The same of a random direction with the norm of the amplification."""
    random_expert: Mapped[int]
    output_share: Mapped[float]
    """Share of the summed norms of all active experts' contributions."""
    input_dependence: Mapped[float]
    """Share of the squared norm of the contributions outside their mean direction; 0 for a transcoder feature."""
    promoted: Mapped[list[list[float]]] = mapped_column(JSON)
    """[[token id, mean change of log p in nats], …] of the tokens promoted most, by the logit lens; largest first."""
    suppressed: Mapped[list[list[float]]] = mapped_column(JSON)


class SteeringStrengthRecord(Base):
    """Effect of amplifying one expert at one strength; see ``mxd.trainer.evaluation.steering``."""

    __tablename__ = "steering_strengths"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    """``none``, ``expert``, ``random_expert`` or ``random_direction``."""
    strength: Mapped[float] = mapped_column(primary_key=True)
    kl: Mapped[float]
    loss: Mapped[float]
    self_similarity: Mapped[float]
    promoted_share: Mapped[float]


class RecurrenceRecord(Base):
    """The best match of an expert in another run of the same layer; see ``mxd.trainer.analysis.recurrence``."""

    __tablename__ = "recurrences"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    other_run: Mapped[str] = mapped_column(String(200), primary_key=True)
    """Name of the other run, which may not be in this database."""
    other_expert: Mapped[int]
    mutual: Mapped[bool]
    """True if that expert has no better match in this run."""
    firing_cosine: Mapped[float]
    firing_low: Mapped[float]
    """Lower end of the 95 % interval."""
    firing_high: Mapped[float]
    firing_chance: Mapped[float]
    writing_cosine: Mapped[float]
    writing_chance: Mapped[float]

    # Clustered by primary key: the matches of an expert are adjacent.
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012


class MeasurementRecord(Base):
    """Settings of a measurement stored in other tables, so that it can be reproduced."""

    __tablename__ = "measurements"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    command: Mapped[str] = mapped_column(String(32), primary_key=True)
    """``ablate``, ``evaluate-steering`` or ``recurrence``."""
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    """None in databases of earlier versions."""


class SequenceRecord(Base):
    """A token sequence of the indexed text, shared by all its examples."""

    __tablename__ = "sequences"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    """Index of the sequence in the indexed text."""
    token_ids: Mapped[bytes] = mapped_column(PackedTokenIds)
    """Little-endian unsigned 32-bit token ids."""


class ExampleRecord(Base):
    """A token of a stored sequence on which an expert is active."""

    __tablename__ = "examples"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    bin: Mapped[int] = mapped_column(primary_key=True)
    """0: top example. 1, 2, …: random example of that activation bin, highest first."""
    rank: Mapped[int] = mapped_column(primary_key=True)
    """Order within the bin, from 0."""
    sequence: Mapped[int]
    position: Mapped[int]
    activation: Mapped[float] = mapped_column(Float)
    active: Mapped[bytes] = mapped_column(PackedActive)
    """Active tokens of the sequence by position; see ``column_types.ACTIVE``."""

    # Clustered by primary key: an expert's examples are adjacent, and the key is stored once.
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012


class EvaluationRecord(Base):
    """Evaluation of a run, or of several runs jointly, on one dataset. A new one replaces the old one."""

    __tablename__ = "evaluations"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    subject: Mapped[str] = mapped_column(Text)
    """Name of the run, or names of the runs joined by `` + ``."""
    text: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(String(32))
    """Digest of the dataset."""
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)
    weights: Mapped[str] = mapped_column(String(64))
    result: Mapped[dict[str, Any]] = mapped_column(JSON)
    sequences: Mapped[bytes] = mapped_column(LargeBinary)
    """Loss increase per sequence in nats, little-endian float32, for confidence intervals over seeds."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (Index("evaluations_of_subject", "subject", "fingerprint", unique=True),)


class ProbeRecord(Base):
    """Probes of a run's experts on one label file."""

    __tablename__ = "probes"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    labels: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(String(32))
    """Digest of the label file."""
    level: Mapped[str] = mapped_column(String(8))
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)
    result: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (Index("probes_of_run", "run_id", "fingerprint", "level", unique=True),)
