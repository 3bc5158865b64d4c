"""The base of all tables of the trainer, and those that labels stand on."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, DateTime, ForeignKey, Integer, LargeBinary, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

COUNT = BigInteger().with_variant(Integer(), "sqlite")
"""What grows with the text or the weights: beyond 2**31. SQLite's integers are as large as they need to be."""


class Base(DeclarativeBase):
    """Base of all tables of the trainer."""


class RoutedRecord(Base):
    """A stored sequence with every expert that is active on each of its tokens; a sample of the indexed text."""

    __tablename__ = "routed_sequences"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    counts: Mapped[bytes] = mapped_column(LargeBinary)
    """How many experts are active on each token; see ``trainer.indexing.sample``."""
    experts: Mapped[bytes] = mapped_column(LargeBinary)
    """Which, token by token, the strongest first."""


class AutomaticLabelRecord(Base):
    """A label that a program gave an expert, with how well it tells where the expert is active."""

    __tablename__ = "automatic_labels"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    maker: Mapped[str] = mapped_column(String(200), primary_key=True)
    """``features``, or the name of the language model that was asked."""
    label: Mapped[str] = mapped_column(Text)
    balanced_accuracy: Mapped[float]
    """On contexts held back, and on text where the expert is not active; 0.5 is chance."""
    precision: Mapped[float | None]
    """Of the tokens that the label describes, the share on which the expert is active; None where that is unknown."""
    recall: Mapped[float | None]
    """Of the tokens on which the expert is active, the share that the label describes."""
    tested: Mapped[int]
    """Held-back contexts that it was tested on."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
