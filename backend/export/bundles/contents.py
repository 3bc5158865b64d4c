"""Checks of a bundle's rows: everything that a reader of the database relies on, beyond the types of columns.

A row that passes can be read by every query, figure and route. ``VALUES`` declares the values of columns, and functions
check values against each other. Values that are stored as JSON are validated with the classes that wrote them.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, StringConstraints, TypeAdapter, ValidationError, create_model

from mxd.backend.schemas.experts import LabelText, ListName, NoteText, Tag
from mxd.backend.schemas.steering import SaveSessionRequest
from mxd.trainer.config.analysis import (
    AblationConfig,
    EvaluateConfig,
    ProbeConfig,
    RecurrenceConfig,
    SteeringEvaluationConfig,
)
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.results import Evaluation
from mxd.trainer.storage.database.column_types import ACTIVE, TOKEN_IDS
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS

Row = dict[str, Any]

LARGEST_FLOAT = 1e30
"""Products and differences of such numbers are finite."""
LARGEST_WHOLE = 2**53
"""Larger whole numbers are not exact in JavaScript."""
DEEPEST = 20
LONGEST_LIST = 4096
LONGEST_SEQUENCE = 2**16
"""Positions are stored as 16-bit numbers."""
YEARS = range(2000, 2200)
TOKEN_IDS_BELOW = 2**24
"""Above any vocabulary size. Embeddings may have more rows than the tokenizer has tokens, so its size is not the
limit."""


class InvalidValueError(ValueError):
    """A value that no reader expects; the message names it."""


def check_plain(name: str, value: object, depth: int = 0) -> None:
    """Check a value at any depth: finite numbers, text that UTF-8 can encode, dates of this era."""
    if isinstance(value, dict | list):
        if depth > DEEPEST:
            raise InvalidValueError(f"{name} is nested too deeply")
        for item in value if isinstance(value, list) else chain(value.keys(), value.values()):
            check_plain(name, item, depth + 1)
        return
    problem = None
    if isinstance(value, str):
        halved = not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value)
        problem = "holds half of a character" if halved else None
    elif isinstance(value, float):
        problem = None if abs(value) <= LARGEST_FLOAT else f"is {value:g}"
    elif isinstance(value, int):
        problem = None if abs(value) <= LARGEST_WHOLE else "is above 2**53"
    elif isinstance(value, datetime):
        problem = None if value.year in YEARS else f"is in the year {value.year}"
    if problem is not None:
        raise InvalidValueError(f"{name} {problem}")


def read_array(name: str, value: bytes, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if len(value) % dtype.itemsize:
        raise InvalidValueError(f"{name} has {len(value)} bytes, not a multiple of {dtype.itemsize}")
    return np.frombuffer(value, dtype)


def check_finite(name: str, values: np.ndarray[Any, Any]) -> None:
    if not bool((np.abs(values) <= LARGEST_FLOAT).all()):
        raise InvalidValueError(f"{name} has values that are not finite")


def check_as_written(adapter: TypeAdapter[Any], stored: object) -> None:
    """Check that a stored result is what ``finite(asdict(result))`` writes: numbers may be null. Other versions of the
    program may have written more or fewer fields, but not inside of fields that are known."""
    filled: Any = stored
    try:
        result = adapter.validate_json(json.dumps(stored), strict=True)
    except ValidationError as error:
        filled = json.loads(json.dumps(stored))
        for one in error.errors(include_url=False):
            # Histograms and curves have no gaps.
            if one["type"] != "float_type" or one["input"] is not None or isinstance(one["loc"][-1], int):
                raise
            value: Any = filled
            for part in one["loc"][:-1]:
                value = value[part]
            value[one["loc"][-1]] = 0.0
        result = adapter.validate_json(json.dumps(filled), strict=True)
    written = adapter.dump_python(result, mode="json")
    if any(filled[name] != value for name, value in written.items() if name in filled):
        raise InvalidValueError("result has fields that no program writes")


# ---------------------------------------------------------------- values of columns

NotNegative = Annotated[float, Field(strict=True, ge=0)]
Whole = Annotated[float, Field(strict=True, ge=0, lt=LARGEST_WHOLE, multiple_of=1)]
"""A whole number. JSON columns may turn counts into floats."""
TokenId = Annotated[float, Field(strict=True, ge=0, lt=TOKEN_IDS_BELOW, multiple_of=1)]
Number = Annotated[float, Field(strict=True)]
Effects = Annotated[list[tuple[TokenId, Number]], Field(max_length=LONGEST_LIST)]
ListId = Annotated[int, Field(ge=1, lt=2**31)]

MEASURED: dict[str, type[BaseModel]] = {
    "ablate": AblationConfig,
    "evaluate-steering": SteeringEvaluationConfig,
    "recurrence": RecurrenceConfig,
}
NOT_NEGATIVE = tuple(
    column.key
    for column in EXPERT_COLUMNS
    if column.compute is None and column.measured_by == "index" and column.kind in ("count", "number", "share", "bound")
)
VALUES: dict[str, dict[str, Any]] = {
    "indexes": {
        **dict.fromkeys(("seed", "tokens", "active_experts", "examples", "normalized_mse"), NotNegative),
        "context_length": Annotated[int, Field(ge=1, le=LONGEST_SEQUENCE)],
    },
    "experts": {
        **dict.fromkeys(NOT_NEGATIVE, NotNegative | None),
        "top_tokens": Annotated[list[tuple[TokenId, Whole]], Field(max_length=LONGEST_LIST)],
        "histogram": Annotated[list[Whole], Field(max_length=LONGEST_LIST)],
        "bins": Annotated[list[tuple[Number, Number, Whole]], Field(max_length=LONGEST_LIST)],
    },
    "sequences": {"sequence": Whole},
    "examples": {
        "bin": Annotated[int, Field(ge=0, lt=LONGEST_LIST)],
        **dict.fromkeys(("rank", "position"), Whole),
        "activation": NotNegative,
    },
    "routed_sequences": {},
    "automatic_labels": {
        **dict.fromkeys(("balanced_accuracy", "precision", "recall", "test_examples"), NotNegative | None),
        "label": Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)],
    },
    "ablations": {"examples": NotNegative, "promoted": Effects, "suppressed": Effects},
    "recurrences": {"other_expert": Whole},
    "steering_strengths": {"kind": Literal["none", "expert", "random_expert", "random_direction"]},
    "measurements": {},
    "evaluations": {"settings": EvaluateConfig},
    "probes": {"settings": ProbeConfig, "level": Literal["text", "token"]},
    "labels": {"label": LabelText},
    "notes": {"note": NoteText},
    "tags": {"tag": Tag},
    "lists": {"id": ListId, "name": ListName},
    "list_entries": {"list_id": ListId, "place": Whole},
    "sessions": {
        "id": Annotated[str, Field(pattern="^[a-z0-9]{1,32}$")],
        "units": dict[str, dict[Annotated[str, Field(pattern=r"^\d+$")], Number]],
    },
}
"""Table -> column -> what its values may be. Every table of a bundle has an entry."""


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _values(table: str) -> type[BaseModel]:
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in VALUES[table].items()}
    return create_model(table, **fields)


# ---------------------------------------------------------------- values against each other

INTERVALS = {"kl", "agreement", "normalized_mse", "paper_error", "variance_explained", "l0", "routing_share"}
NEVER_NULL = ("ce_original", "ce_zeroed", "ce_mean_ablated", "ce_frozen", "routing_share")
"""Metrics that readers subtract or compare. Others are null where they are undefined."""
COUNTS = ("num_experts", "k", "trained_k", "parameters", "tokens", "sequences")
"""Fields of a result that are at least 1."""
FEATURE_KINDS = {"experts", "neurons", "random-gate"}


@dataclass
class RunContents:
    """Experts and sequences that the rows of a run refer to."""

    name: str
    num_experts: int
    lengths: dict[int, int] = field(default_factory=dict)
    """Sequence -> number of tokens."""
    counts: dict[str, int] = field(default_factory=dict)
    """Table -> number of rows."""
    has_unsteered: bool = False
    """True if steering strengths have a row without steering, to which the others are compared."""

    def checked(self, table: str, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield decoded rows of a table that every reader can use."""
        for number, row in enumerate(rows, start=self.counts.get(table, 0) + 1):
            try:
                for name, value in row.items():
                    check_plain(name, value)
                for name in ("expert", "random_expert"):
                    self.check_expert(name, row.get(name, 0))
                _values(table).model_validate(row)
                if table in CHECKS:
                    CHECKS[table](self, row)
            except (InvalidValueError, ValidationError, RecursionError) as error:
                reason = str(error)[:200] if isinstance(error, InvalidValueError) else "it is nested too deeply"
                if isinstance(error, ValidationError):
                    first = error.errors(include_url=False, include_context=False)[0]
                    place = ".".join(str(part) for part in first["loc"])
                    reason = f"{place or error.title}: {first['msg']}"[:200]
                raise UserError(
                    f"Invalid {table} in the bundle, row {number}: {reason}. Ask for the bundle to be packed again."
                ) from error
            self.counts[table] = number
            yield row

    def check_expert(self, name: str, expert: int) -> None:
        if not 0 <= expert < self.num_experts:
            raise InvalidValueError(f"{name} is {expert}, but the run has {self.num_experts} experts")

    def check_complete(self) -> None:
        """Check that an index has a row for every expert, and steering a row without it."""
        if self.counts.get("steering_strengths") and not self.has_unsteered:
            raise UserError(
                "Invalid steering_strengths in the bundle: none is 0. Ask for the bundle to be packed again."
            )
        count = self.counts.get("experts", 0)
        if count != (self.num_experts if self.counts.get("indexes") else 0):
            raise UserError(
                f"Invalid experts in the bundle: {count} rows for {self.num_experts} experts. Ask for the bundle to be "
                "packed again."
            )


Check = Callable[[RunContents, Row], object]
CHECKS: dict[str, Check] = {}
"""Table -> check of a row whose values are valid."""


def checks(table: str) -> Callable[[Check], Check]:
    return lambda check: CHECKS.setdefault(table, check)


@checks("sequences")
def _sequence(run: RunContents, row: Row) -> None:
    ids = read_array("token_ids", row["token_ids"], TOKEN_IDS)
    if not 1 <= len(ids) <= LONGEST_SEQUENCE or int(ids.max()) >= TOKEN_IDS_BELOW:
        raise InvalidValueError(f"token_ids has {len(ids)} tokens, or one outside of any vocabulary")
    run.lengths[row["sequence"]] = len(ids)


def _length(run: RunContents, row: Row) -> int:
    length = run.lengths.get(row["sequence"])
    if length is None:
        raise InvalidValueError(f"sequence {row['sequence']} is missing")
    return length


@checks("examples")
def _example(run: RunContents, row: Row) -> None:
    length = _length(run, row)
    active = read_array("active", row["active"], ACTIVE)
    positions = active["position"].astype(np.int64)
    if not len(active) or bool((np.diff(positions) <= 0).any()) or max(positions[-1], row["position"]) >= length:
        raise InvalidValueError("active has positions outside the sequence or out of order")
    check_finite("active", active["activation"])


@checks("routed_sequences")
def _routed(run: RunContents, row: Row) -> None:
    length = _length(run, row)
    counts = read_array("counts", row["counts"], np.dtype("<u2"))
    experts = read_array("experts", row["experts"], np.dtype("<u2" if run.num_experts <= 1 << 16 else "<u4"))
    if len(counts) != length or int(counts.sum(dtype=np.int64)) != len(experts):
        raise InvalidValueError("counts do not match the sequence and its experts")
    run.check_expert("experts", int(experts.max(initial=0)))


@checks("steering_strengths")
def _strength(run: RunContents, row: Row) -> None:
    run.has_unsteered |= row["kind"] == "none" and row["strength"] == 0


@checks("measurements")
def _measurement(_run: RunContents, row: Row) -> None:
    if row["command"] not in MEASURED:
        raise InvalidValueError(f"command is {row['command']!r}")
    MEASURED[row["command"]].model_validate(row["settings"])


@checks("evaluations")
def _evaluation(run: RunContents, row: Row) -> None:
    result = row["result"]
    check_as_written(_adapter(Evaluation), result)
    if row["subject"].removesuffix(f" at K {result['k']}") != run.name:
        raise InvalidValueError(f"subject is {row['subject'][:40]!r}")
    missing = sorted(INTERVALS - result["intervals"].keys())
    missing += [name for name in NEVER_NULL if result[name] is None]
    missing += [name for name in COUNTS if result[name] < 1]
    missing += [f"loss_increase.{part}" for part, value in result["loss_increase"].items() if value is None]
    if missing:
        raise InvalidValueError(f"result lacks {missing[0]}")
    check_finite("sequences", values := read_array("sequences", row["sequences"], np.dtype("<f4")))
    if len(values) != result["sequences"]:
        raise InvalidValueError(f"sequences has {len(values)} values, but the result {result['sequences']}")


@checks("probes")
def _probe(run: RunContents, row: Row) -> None:
    from mxd.trainer.evaluation.probing import FeatureResult  # imports scikit-learn, which takes seconds

    result = row["result"]
    if not isinstance(result, dict) or result.get("level") != row["level"]:
        raise InvalidValueError("result is of another level")
    _adapter(Whole).validate_python(result.get("examples"))
    kinds = result.get("kinds")
    if not isinstance(kinds, dict) or kinds.keys() != FEATURE_KINDS:
        raise InvalidValueError("result lacks a kind of features")
    for kind in kinds.values():
        check_as_written(_adapter(FeatureResult), kind)
    if len({frozenset(kind["classes"]) for kind in kinds.values()}) > 1 or not kinds["experts"]["classes"]:
        raise InvalidValueError("the kinds of features have different classes")
    for kind in kinds.values():
        for name, scores in kind["classes"].items():
            for probe in (scores["top1"], scores["top5"]):  # what pages show
                if not probe["experts"] or None in (probe["f1"], probe["f1_low"], probe["f1_high"]):
                    raise InvalidValueError(f"the probe of class {name[:40]!r} lacks a score")
    for scores in kinds["experts"]["classes"].values():
        run.check_expert("expert", scores["expert"])


@checks("sessions")
def _session(_run: RunContents, row: Row) -> None:
    SaveSessionRequest.model_validate({name: row[name] for name in SaveSessionRequest.model_fields})
