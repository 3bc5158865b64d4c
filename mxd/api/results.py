"""Results of indexing as objects: they print, display in notebooks and convert to tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy import inspect
from sqlalchemy.orm import Session

from mxd.api.loading import opened_read_only, readable_databases
from mxd.backend.database.annotations import LabelRecord, labels_of
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.trainer.analysis.expert import Expert, TopExample, examples_table, load_expert
from mxd.trainer.config import Edit, SteeringConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.index_values import with_medians
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Examples(Sequence[TopExample]):
    """Top examples of an expert, largest activation first. Notebooks render them as HTML."""

    run: str
    expert: int
    examples: tuple[TopExample, ...]

    @overload
    def __getitem__(self, index: int) -> TopExample: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TopExample, ...]: ...
    def __getitem__(self, index: int | slice) -> TopExample | tuple[TopExample, ...]:
        return self.examples[index]

    def __iter__(self) -> Iterator[TopExample]:
        return iter(self.examples)

    def __len__(self) -> int:
        return len(self.examples)

    def to_pandas(self) -> pd.DataFrame:
        """One row per example: ``activation``, ``token``, ``position``, ``text``, ``tokens`` and ``activations``.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UserError("Tables need pandas, which is not installed. Run: pip install pandas") from error
        return pd.DataFrame([_row(example) for example in self.examples], columns=list(COLUMNS))

    def _repr_html_(self) -> str:
        """One line per example, with tokens shaded by activation."""
        return examples_table(self.examples, max((each.activation for each in self.examples), default=1.0) or 1.0)


COLUMNS = ("activation", "token", "position", "text", "tokens", "activations")


def _row(example: TopExample) -> dict[str, Any]:
    return {
        "activation": example.activation,
        "token": example.tokens[example.position],
        "position": example.position,
        "text": "".join(example.tokens),
        "tokens": list(example.tokens),
        "activations": list(example.coefficients),
    }


def read_expert(run: Run, expert: int, examples: int, database: str | None) -> Expert:
    """Read an expert with its ``examples`` and the label that the dashboard shows.

    Raises:
        NotFoundError: the run is not indexed, or has no such expert.
    """
    missing = NotFoundError(f"Run '{run.name}' is not indexed.")
    for url in readable_databases(run, database):
        try:
            return _read(url, run, expert, examples)
        except NotFoundError as error:
            missing = error
    raise missing


def _read(url: str, run: Run, expert: int, examples: int) -> Expert:
    with opened_read_only(url) as engine, Session(engine) as session:
        return load_expert(session, run, expert, _shown_label(session, run, expert), examples)


def _shown_label(session: Session, run: Run, expert: int) -> str | None:
    has_annotations = inspect(session.connection()).has_table(LabelRecord.__tablename__)
    own = labels_of(session, run.name, [expert]) if has_annotations else {}
    if expert in own:
        return own[expert]
    automatic = shown_labels(session, find_record(session, run.name), [expert])
    return automatic[expert].label if expert in automatic else None


def resolve_medians(run: Run, edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Replace ``median`` in gate tests by the expert's median in units, from the index of ``run``. Without an index,
    edits stay as they are."""
    config = SteeringConfig(prompt="", edits=tuple(edits))
    if any(test.level == "median" for edit in edits if edit.when for test in edit.when.gates):
        for url in readable_databases(run, None):
            with suppress(NotFoundError), opened_read_only(url) as engine, Session(engine) as session:
                config = with_medians(session, config, run.name)
    return config.edits
