"""Checks of a bundle's rows: everything that a reader of the database relies on, beyond the types of columns.

A row that passes can be read by every query, figure and route. Values that are stored as JSON are validated with the
classes that wrote them. A check raises ``InvalidValueError``, whose message names the value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from mxd.backend.schemas.experts import AnnotationChange, MakeListRequest
from mxd.backend.schemas.steering import SaveSessionRequest
from mxd.trainer.config import EvaluateConfig
from mxd.trainer.config.analysis import AblationConfig, ProbeConfig, RecurrenceConfig, SteeringEvaluationConfig
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
    if isinstance(value, Mapping | list):
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


def check_whole(name: str, value: object, end: int = LARGEST_WHOLE) -> int:
    """Return a whole number from 0 to ``end`` - 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON columns may turn counts into floats
    if type(value) is not int or not 0 <= value < end:
        raise InvalidValueError(f"{name} is {str(value)[:40]}, not a whole number from 0 to {end - 1}")
    return value


def check_not_negative(row: Row, *names: str) -> None:
    """Check that columns are null or at least 0."""
    for name in names:
        if row[name] is not None and row[name] < 0:
            raise InvalidValueError(f"{name} is negative: {row[name]}")


def check_numbers(name: str, items: object, length: int) -> list[Any]:
    """Return a list of ``length`` numbers."""
    if not isinstance(items, list) or len(items) != length or any(type(item) not in (int, float) for item in items):
        raise InvalidValueError(f"{name} holds something else than {length} numbers")
    return items


def check_list(name: str, items: object) -> list[Any]:
    """Return a list of at most ``LONGEST_LIST`` items."""
    if not isinstance(items, list) or len(items) > LONGEST_LIST:
        raise InvalidValueError(f"{name} is not a list of at most {LONGEST_LIST} items")
    return items


def read_array(name: str, value: bytes, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the numbers of packed bytes."""
    if len(value) % dtype.itemsize:
        raise InvalidValueError(f"{name} has {len(value)} bytes, not a multiple of {dtype.itemsize}")
    return np.frombuffer(value, dtype)


def check_finite(name: str, values: np.ndarray[Any, Any]) -> None:
    if not bool((np.abs(values) <= LARGEST_FLOAT).all()):
        raise InvalidValueError(f"{name} has values that are not finite")


def check_as_written(adapter: TypeAdapter[Any], stored: object) -> None:
    """Check that a stored result is what ``finite(asdict(result))`` writes: numbers may be null. Other versions of the
    program may have written more or fewer fields, but not inside of fields that are known."""
    filled = json.loads(json.dumps(stored))
    try:
        result = adapter.validate_json(json.dumps(filled), strict=True)
    except ValidationError as error:
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


INTERVALS = {"kl", "agreement", "normalized_mse", "paper_error", "variance_explained", "l0", "routing_share"}
NEVER_NULL = ("ce_original", "ce_zeroed", "ce_mean_ablated", "ce_frozen", "routing_share")
"""Metrics that readers subtract or compare. Others are null where they are undefined."""
COUNTS = ("num_experts", "k", "trained_k", "parameters", "tokens", "sequences")
"""Fields of a result that are at least 1."""
FEATURE_KINDS = {"experts", "neurons", "random-gate"}
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
STEERED_KINDS = ("none", "expert", "random_expert", "random_direction")


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
        """Yield decoded rows of a table that every reader can use. Raises UserError if a value is out of range, or does
        not match the rows before it."""
        for number, row in enumerate(rows, start=self.counts.get(table, 0) + 1):
            try:
                for name, value in row.items():
                    check_plain(name, value)
                if "expert" in row:
                    check_whole("expert", row["expert"], self.num_experts)
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

    def check_complete(self) -> None:
        """Check that an index has a row for every expert, and steering a row without it. Raises UserError if one is
        missing."""
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
CHECKS: dict[str, Check] = {
    "recurrences": lambda _run, row: check_whole("other_expert", row["other_expert"]),
    "labels": lambda _run, row: AnnotationChange(label=row["label"]),
    "notes": lambda _run, row: AnnotationChange(note=row["note"]),
    "tags": lambda _run, row: AnnotationChange(add_tags=(row["tag"],)),
    "lists": lambda _run, row: (check_whole("id", row["id"] - 1, 2**31 - 1), MakeListRequest(name=row["name"])),
    "list_entries": lambda _run, row: (
        check_whole("list_id", row["list_id"], 2**31),
        check_whole("place", row["place"]),
    ),
}
"""Table -> check of a row. Every table of a bundle has one."""


def checks(table: str) -> Callable[[Check], Check]:
    return lambda check: CHECKS.setdefault(table, check)


@checks("indexes")
def _index(_run: RunContents, row: Row) -> None:
    check_not_negative(row, "seed", "tokens", "active_experts", "examples", "normalized_mse")
    check_whole("context_length", row["context_length"] - 1, LONGEST_SEQUENCE)


@checks("experts")
def _expert(_run: RunContents, row: Row) -> None:
    check_not_negative(row, *NOT_NEGATIVE)
    for pair in check_list("top_tokens", row["top_tokens"]):
        token, count = check_numbers("top_tokens", pair, 2)
        check_whole("top_tokens", token, TOKEN_IDS_BELOW)
        check_whole("top_tokens", count)
    for count in check_list("histogram", row["histogram"]):
        check_whole("histogram", count)
    for bounds in check_list("bins", row["bins"]):
        check_whole("bins", check_numbers("bins", bounds, 3)[2])


@checks("sequences")
def _sequence(run: RunContents, row: Row) -> None:
    number, ids = check_whole("sequence", row["sequence"]), read_array("token_ids", row["token_ids"], TOKEN_IDS)
    check_whole("length of the sequence", len(ids) - 1, LONGEST_SEQUENCE)
    if int(ids.max()) >= TOKEN_IDS_BELOW:
        raise InvalidValueError(f"token_ids has {int(ids.max())}, more than any vocabulary")
    run.lengths[number] = len(ids)


def _length(run: RunContents, row: Row) -> int:
    length = run.lengths.get(row["sequence"])
    if length is None:
        raise InvalidValueError(f"sequence {row['sequence']} is missing")
    return length


@checks("examples")
def _example(run: RunContents, row: Row) -> None:
    length = _length(run, row)
    check_whole("bin", row["bin"], LONGEST_LIST)
    check_whole("rank", row["rank"])
    check_whole("position", row["position"], length)
    check_not_negative(row, "activation")
    active = read_array("active", row["active"], ACTIVE)
    positions = active["position"].astype(np.int64)
    if not len(active) or bool((np.diff(positions) <= 0).any()) or positions[-1] >= length:
        raise InvalidValueError("active has positions outside the sequence or out of order")
    check_finite("active", active["activation"])


@checks("routed_sequences")
def _routed(run: RunContents, row: Row) -> None:
    length = _length(run, row)
    counts = read_array("counts", row["counts"], np.dtype("<u2"))
    experts = read_array("experts", row["experts"], np.dtype("<u2" if run.num_experts <= 1 << 16 else "<u4"))
    if len(counts) != length or int(counts.sum(dtype=np.int64)) != len(experts):
        raise InvalidValueError("counts do not match the sequence and its experts")
    if len(experts) and int(experts.max()) >= run.num_experts:
        raise InvalidValueError(f"experts has {int(experts.max())}, but the run has {run.num_experts} experts")


@checks("automatic_labels")
def _automatic_label(_run: RunContents, row: Row) -> None:
    check_not_negative(row, "balanced_accuracy", "precision", "recall", "test_examples")
    AnnotationChange(label=row["label"][:200])


@checks("ablations")
def _ablation(run: RunContents, row: Row) -> None:
    check_not_negative(row, "examples")
    check_whole("random_expert", row["random_expert"], run.num_experts)
    for name in ("promoted", "suppressed"):
        for pair in check_list(name, row[name]):
            check_whole(name, check_numbers(name, pair, 2)[0], TOKEN_IDS_BELOW)


@checks("steering_strengths")
def _strength(run: RunContents, row: Row) -> None:
    run.has_unsteered |= row["kind"] == "none" and row["strength"] == 0
    if row["kind"] not in STEERED_KINDS:
        raise InvalidValueError(f"kind is {row['kind']!r}")


@checks("measurements")
def _measurement(_run: RunContents, row: Row) -> None:
    if row["command"] not in MEASURED:
        raise InvalidValueError(f"command is {row['command']!r}")
    MEASURED[row["command"]].model_validate(row["settings"])


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@checks("evaluations")
def _evaluation(run: RunContents, row: Row) -> None:
    EvaluateConfig.model_validate(row["settings"])
    result = row["result"]
    check_as_written(_adapter(Evaluation), result)
    if row["subject"].removesuffix(f" at K {result['k']}") != run.name:
        raise InvalidValueError(f"subject is {row['subject'][:40]!r}")
    for name in COUNTS:
        check_whole(f"result.{name} - 1", result[name] - 1)
    missing = sorted(INTERVALS - result["intervals"].keys())
    missing += [name for name in NEVER_NULL if result[name] is None]
    missing += [f"loss_increase.{part}" for part, value in result["loss_increase"].items() if value is None]
    if missing:
        raise InvalidValueError(f"result lacks {missing[0]}")
    check_finite("sequences", values := read_array("sequences", row["sequences"], np.dtype("<f4")))
    if len(values) != result["sequences"]:
        raise InvalidValueError(f"sequences has {len(values)} values, but the result {result['sequences']}")


@checks("probes")
def _probe(run: RunContents, row: Row) -> None:
    from mxd.trainer.evaluation.probing import FeatureResult  # imports scikit-learn, which takes seconds

    ProbeConfig.model_validate(row["settings"])
    result = row["result"]
    if not isinstance(result, dict) or result.get("level") != row["level"] or row["level"] not in ("text", "token"):
        raise InvalidValueError("result is of another level")
    check_whole("examples", result.get("examples"))
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
        check_whole("expert", scores["expert"], run.num_experts)


@checks("sessions")
def _session(_run: RunContents, row: Row) -> None:
    if not (row["id"].isascii() and row["id"].isalnum() and row["id"] == row["id"].lower() and len(row["id"]) <= 32):
        raise InvalidValueError(f"id is {row['id'][:40]!r}")
    SaveSessionRequest.model_validate({name: row[name] for name in ("name", "steering", "text")})
    for units in TypeAdapter(dict[str, dict[str, float]]).validate_python(row["units"], strict=True).values():
        if not all(expert.isdecimal() and math.isfinite(unit) for expert, unit in units.items()):
            raise InvalidValueError("units has something else than experts and numbers")
