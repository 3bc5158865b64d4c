"""The first tables that were released.

Stores of versions 1 to 3, in SQLite alone, were written before that and held an index in other ways. It is taken away
and has to be made again; runs, metrics, evaluations and probes stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = None

SORTED = ("usage", "mean", "largest", "entropy", "added_loss", "kl_up", "output_share", "input_dependence")
OF_INDEXES = (
    "automatic_labels",
    "routed_sequences",
    "steering_doses",
    "influences",
    "contexts",
    "sequences",
    "experts",
    "indexes",
)
SEARCH_IN_POSTGRESQL = """
CREATE TABLE IF NOT EXISTS search_documents (
    run_id integer NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    expert integer NOT NULL,
    body tsvector NOT NULL,
    PRIMARY KEY (run_id, expert)
);
CREATE INDEX IF NOT EXISTS search_documents_by_word ON search_documents USING gin (body);
"""


def upgrade() -> None:
    """Take away what was written in other ways, then make what is missing."""
    if op.get_bind().dialect.name == "sqlite":
        _leave_behind_earlier_indexes()
    _runs()
    _experts()
    _what_experts_do()
    _contexts()
    _evaluations()
    if op.get_bind().dialect.name == "postgresql":
        op.execute(SEARCH_IN_POSTGRESQL)
        op.execute("DROP TABLE IF EXISTS schema_version")


def _leave_behind_earlier_indexes() -> None:
    connection = op.get_bind()
    if not 0 < connection.exec_driver_sql("PRAGMA user_version").scalar_one() < 4:
        return
    searches = connection.exec_driver_sql(
        "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%' "
        "AND (name = 'context_text' OR name GLOB 'search_[0-9]*')"
    ).scalars()
    for table in (*searches.all(), *OF_INDEXES):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
    connection.exec_driver_sql("PRAGMA user_version = 4")


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        _text("name", 200),
        _text("status", 16),
        sa.Column("error", sa.Text),
        _text("language_model"),
        _integer("layer"),
        _text("method", 32),
        _text("activation", 32),
        *map(_integer, ("num_experts", "k", "input_width", "hidden_width", "output_width", "parameters")),
        _text("text"),
        *map(_integer, ("seed", "context", "tokens_wanted", "tokens_done")),
        _json("config"),
        _time("started_at"),
        _time("updated_at"),
        sa.UniqueConstraint("name"),
        if_not_exists=True,
    )
    figures = ("normalised_mse", "dead_share", "l0", "largest_usage", "tokens_per_second", "seconds")
    _make("metrics", (_run(), _key("step"), _integer("tokens"), *map(_number, figures)))


def _experts() -> None:
    counts = map(_integer, ("seed", "tokens", "context", "experts_active", "contexts"))
    _make("indexes", (_run(), _text("text"), *counts, _number("normalised_mse"), _time("created_at")))
    columns = (
        _integer("active_tokens"),
        *map(_number, ("usage", "mean", "largest", "p99", "entropy")),
        _bytes("top_tokens"),
        _bytes("histogram"),
        _number("histogram_high"),
        _json("intervals"),
        *map(_number, ("added_loss", "kl_up", "output_share", "input_dependence")),
    )
    _make("experts", (_run(), _key("expert"), *columns))
    for column in SORTED:
        op.create_index(f"experts_by_{column}", "experts", ["run_id", column, "expert"], if_not_exists=True)


def _what_experts_do() -> None:
    columns = (
        _integer("contexts"),
        sa.Column("added_loss", sa.Double),
        *map(_number, ("kl_off", "kl_up", "kl_other", "kl_direction")),
        _integer("other"),
        *map(_number, ("output_share", "input_dependence")),
        _json("promoted"),
        _json("suppressed"),
    )
    _make("influences", (_run(), _key("expert"), *columns))
    kind = sa.Column("kind", sa.String(16), primary_key=True)
    strength = sa.Column("strength", sa.Double, primary_key=True)
    figures = map(_number, ("kl", "loss", "self_similarity", "promoted_share"))
    _make("steering_doses", (_run(), _key("expert"), kind, strength, *figures))
    labels = (
        sa.Column("maker", sa.String(200), primary_key=True),
        _text("label"),
        _number("balanced_accuracy"),
        sa.Column("precision", sa.Double),
        sa.Column("recall", sa.Double),
        _integer("tested"),
        _time("created_at"),
    )
    _make("automatic_labels", (_run(), _key("expert"), *labels))


def _contexts() -> None:
    _make("sequences", (_run(), _key("sequence"), _bytes("token_ids")))
    _make("routed_sequences", (_run(), _key("sequence"), _bytes("counts"), _bytes("experts")))
    op.create_table(
        "contexts",
        _run(),
        *map(_key, ("expert", "interval", "rank")),
        *map(_integer, ("sequence", "position")),
        sa.Column("coefficient", sa.Float, nullable=False),
        _bytes("active"),
        sqlite_with_rowid=False,
        if_not_exists=True,
    )


def _evaluations() -> None:
    of_text = (_text("text"), _text("fingerprint", 32), _json("settings"), _text("weights", 64))
    measured = (_json("result"), _bytes("sequences"), _time("created_at"))
    _make("evaluations", (*_numbered_of_run(), _text("subject"), *of_text, *measured))
    subject = ["subject", "fingerprint"]
    op.create_index("evaluations_of_subject", "evaluations", subject, unique=True, if_not_exists=True)
    op.create_index("ix_evaluations_run_id", "evaluations", ["run_id"], if_not_exists=True)
    of_labels = (_text("labels"), _text("fingerprint", 32), _text("level", 8), _json("settings"))
    _make("probes", (*_numbered_of_run(), *of_labels, _json("result"), _time("created_at")))
    op.create_index("probes_of_run", "probes", ["run_id", "fingerprint", "level"], unique=True, if_not_exists=True)


def _numbered_of_run() -> tuple[sa.Column[Any], sa.Column[Any]]:
    run = sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False)
    return sa.Column("id", sa.Integer, primary_key=True), run


def _make(table: str, columns: Iterable[sa.Column[Any]]) -> None:
    op.create_table(table, *columns, if_not_exists=True)


def _run() -> sa.Column[Any]:
    return sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)


def _key(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, primary_key=True, autoincrement=False)


def _integer(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, nullable=False)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=False)


def _text(name: str, length: int | None = None) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length) if length else sa.Text(), nullable=False)


def _bytes(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON, nullable=False)


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)
