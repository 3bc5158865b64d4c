"""The experts' table: one declaration per column.

The SQL table, the rows, orders and filters of the API, exports, the terminal's table, checks of
bundles and the dashboard's table derive from these declarations. A statistic that follows from stored ones is an entry
of ``COMPUTED``. A stored one is an attribute of ``ExpertRecord``, needs a migration and is written by
``mxd.trainer.analysis.indexing.build``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import JSON, ForeignKey, Index
from sqlalchemy.orm import Mapped, MappedColumn, mapped_column

from mxd.trainer.storage.database.column_types import PackedCounts, PackedPairs
from mxd.trainer.storage.database.tables import COUNT, Base

Kind = Literal["id", "count", "number", "share", "difference", "bound", "text", "label", "tags", "tokens", "histogram"]
"""``share``: between 0 and 1, shown in percent. ``difference``: shown with its sign. ``bound``: an end of another
column's range."""
Measurement = Literal["index", "ablate", "recurrence", "annotation"]
"""The command that measures a column, as in ``mxd ablate``; ``annotation`` for labels and tags."""
Place = Literal["table", "expert", "terminal"]
"""``table``: the dashboard's table of experts. ``expert``: its page of one expert. ``terminal``: ``mxd experts``."""
End = Literal["min", "max"]
NUMERIC: frozenset[Kind] = frozenset(("count", "number", "share", "difference"))
REAL: frozenset[Kind] = frozenset(("number", "share", "difference", "bound"))


@dataclass(frozen=True)
class ExpertColumn:
    """A column of the experts' table."""

    title: str
    kind: Kind
    description: str
    """One or two sentences, with range and reference."""
    key: str = ""
    """Name in SQL, JSON, CSV and Parquet."""
    header: str = ""
    """Short title for table headers. Default: the title."""
    unit: str | None = None
    digits: int = 2
    """Digits after the decimal point on screen."""
    measured_by: Measurement = "index"
    nullable: bool = False
    sortable: bool = False
    filters: tuple[End, ...] = ()
    """Bounds by which pages of experts can be filtered."""
    shown: tuple[Place, ...] = ()
    compute: Callable[[Any], Any] | None = None
    """Computes the column from stored ones. A sortable one is an SQL expression when called with ``ExpertRecord``."""

    def of(self, record: type[ExpertRecord] | ExpertRecord) -> Any:
        """Return the SQL expression of the column, or its value in a row."""
        return getattr(record, self.key) if self.compute is None else self.compute(record)


def _stored(title: str, kind: Kind, description: str, *, sql_type: Any = None, **facts: Any) -> MappedColumn[Any]:
    """A column of the SQL table; ``facts`` are further fields of its ``ExpertColumn``."""
    column = ExpertColumn(title, kind, description, **facts)
    # Effects are 0 until measured. A measured output_share is above 0.
    default: dict[str, Any] = {"default": 0.0} if column.measured_by == "ablate" else {}
    return mapped_column(sql_type, info={"column": column}, **default)


class ExpertRecord(Base):
    """Statistics of an expert over the indexed text. Dead experts have a row, too."""

    __tablename__ = "experts"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    density: Mapped[float] = _stored(
        "Density",
        "share",
        "Share of tokens on which the expert is active. A dead expert is never active.",
        unit="%",
        digits=3,
        sortable=True,
        filters=("min", "max"),
        shown=("table", "expert", "terminal"),
    )
    active_tokens: Mapped[int] = _stored(
        "Active tokens", "count", "Number of indexed tokens on which the expert is active.", sql_type=COUNT
    )
    mean_activation: Mapped[float] = _stored(
        "Mean when active",
        "number",
        "Mean activation over the tokens on which the expert is active.",
        header="Mean",
        sortable=True,
        filters=("min", "max"),
        shown=("table", "expert"),
    )
    max_activation: Mapped[float] = _stored(
        "Max activation",
        "number",
        "Largest activation in the index.",
        header="Max",
        sortable=True,
        filters=("min", "max"),
        shown=("table", "expert", "terminal"),
    )
    p99: Mapped[float] = _stored(
        "99th percentile (p99)",
        "number",
        "Activation that 1 % of the expert’s active tokens exceed. It is the unit of strength in Steer.",
        header="p99",
        shown=("expert",),
    )
    entropy: Mapped[float] = _stored(
        "Token entropy",
        "number",
        "How evenly the active tokens are spread over token types, in bits: 0 for one type, 3 for eight equally "
        "frequent types.",
        unit="bits",
        sortable=True,
        shown=("table", "expert"),
    )
    top_tokens: Mapped[list[list[int]]] = _stored(
        "Top activating tokens",
        "tokens",
        "Tokens on which the expert is active most often.",
        header="Top tokens",
        shown=("table", "terminal"),
        sql_type=PackedPairs,
    )
    """[[token id, count], …], most frequent first."""
    histogram: Mapped[list[int]] = _stored(
        "Histogram of activations",
        "histogram",
        "Number of the expert’s active tokens by activation, on a log scale. Each histogram goes from 0 to the "
        "expert’s own maximum.",
        header="Activations",
        shown=("table",),
        sql_type=PackedCounts,
    )
    """Counts of its activation in equal bins from 0 to ``histogram_high``."""
    histogram_high: Mapped[float] = _stored(
        "Upper end of the histogram", "bound", "A power of two, at least the largest activation; 0 if dead."
    )
    bins: Mapped[list[list[float]]] = mapped_column(JSON)
    """[[low, high, active tokens], …] from the highest bin to the lowest. Bin b of an example is entry b - 1."""
    # Copies from AblationRecord for sorting.
    loss_increase: Mapped[float] = _stored(
        "Loss increase when ablated (ΔCE)",
        "difference",
        "Mean rise of the next-token loss, in nats per token, when the expert is ablated on its own examples. A "
        "negative value clearly beyond a random expert’s means that the predictions are better without the expert.",
        header="Δ loss ablated",
        unit="nats",
        digits=4,
        measured_by="ablate",
        nullable=True,
        sortable=True,
        shown=("table", "terminal"),
    )
    kl_amplified: Mapped[float] = _stored(
        "KL when amplified",
        "number",
        "How much adding one p99 to the activation changes the next-token distribution: KL divergence from the "
        "distribution without the edit, in nats per token.",
        header="KL at +p99",
        unit="nats",
        digits=4,
        measured_by="ablate",
        nullable=True,
        sortable=True,
        shown=("table",),
    )
    output_share: Mapped[float] = _stored(
        "Share of output",
        "share",
        "The expert’s share of the summed norms of all active experts’ outputs, on its examples.",
        unit="%",
        measured_by="ablate",
        nullable=True,
        sortable=True,
    )
    input_dependence: Mapped[float] = _stored(
        "Input dependence",
        "share",
        "Share of the output that lies outside its mean direction. A transcoder feature has a fixed direction, so "
        "its value is 0 %.",
        unit="%",
        measured_by="ablate",
        nullable=True,
        sortable=True,
    )
    steerability: Mapped[float | None] = _stored(
        "Steerability",
        "number",
        "Predicted change of the next-token distribution on unrelated text when one unit is added on every token: "
        "KL divergence in nats per token. An expert near 0 cannot steer.",
        unit="nats",
        digits=4,
        nullable=True,
        sortable=True,
        filters=("min",),
        shown=("table", "expert"),
    )
    """0 for dead experts; None if the language model has no gradients to compute it from."""


_STORED = tuple(
    replace(column.info["column"], key=column.key) for column in ExpertRecord.__table__.columns if column.info
)
# Random experts and histograms read all densities of a run. Pages are ordered in memory; see ``queries.expert_table``.
Index("experts_by_density", ExpertRecord.run_id, ExpertRecord.density, ExpertRecord.expert)
_NUMBERS = tuple(column for column in _STORED if column.kind in NUMERIC)
_LISTS = tuple(column for column in _STORED if column.kind not in NUMERIC)

EXPERT = ExpertColumn("Expert", "id", "Number of the expert in its layer.", "expert", "Id", sortable=True)

COMPUTED = (
    ExpertColumn(
        "Activation per token",
        "number",
        "Mean activation over all indexed tokens, active or not: density times mean when active. The experts with "
        "the largest values carry most of the layer’s activation.",
        "activation_per_token",
        header="Per token",
        digits=4,
        sortable=True,
        filters=("min",),
        shown=("table", "expert"),
        compute=lambda expert: expert.density * expert.mean_activation,
    ),
)

EXPERT_COLUMNS: tuple[ExpertColumn, ...] = (
    replace(EXPERT, shown=("table", "terminal")),
    ExpertColumn(
        "Label",
        "text",
        "User label. Sorted by label, user labels come first, then automatic ones by the lower end of their balanced "
        "accuracy's 95 % interval, so that few examples do not rank first.",
        "label",
        measured_by="annotation",
        nullable=True,
        sortable=True,
        shown=("table", "terminal"),
    ),
    ExpertColumn(
        "Automatic label",
        "label",
        "A label derived from stored examples, shown if there is no user label.",
        "automatic",
        measured_by="annotation",
        nullable=True,
    ),
    ExpertColumn("Tags", "tags", "Tags of users.", "tags", measured_by="annotation"),
    *_NUMBERS,
    *COMPUTED,
    ExpertColumn(
        "Found again",
        "count",
        "Number of other runs of the same layer, such as other seeds, that have a matching expert. A match fires on "
        "the same tokens and has the same output, more than shuffled experts do. Neither of the two experts has a "
        "better match. Measured by mxd recurrence.",
        "recurrence",
        unit="times",
        measured_by="recurrence",
        nullable=True,
        sortable=True,
        filters=("min",),
        shown=("table", "terminal"),
    ),
    ExpertColumn(
        "Compared runs",
        "count",
        "Number of other runs that the expert was compared with.",
        "compared_runs",
        measured_by="recurrence",
        nullable=True,
    ),
    *_LISTS,
)
"""All columns in the order of files and screens."""

SORTS = tuple(column.key for column in EXPERT_COLUMNS if column.sortable)
BOUNDS = {
    f"{end}_{column.key}": (end, column) for column in EXPERT_COLUMNS for end in ("min", "max") if end in column.filters
}
"""Filters by name, such as ``min_density``."""
ABLATION_COLUMNS = tuple(column.key for column in _NUMBERS if column.measured_by == "ablate")
