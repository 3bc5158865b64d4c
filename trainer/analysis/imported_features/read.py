"""Rows of a Neuronpedia export, or of SAEDashboard's batches, checked.

batch-N.json                    SAEDashboard: features with their activations
features/N.jsonl.gz             Neuronpedia: one feature per line
activations/N.jsonl.gz          their examples
explanations/N.jsonl.gz         their labels; both formats may have them
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from mxd.trainer.errors import NotFoundError, UserError

T = TypeVar("T", bound=BaseModel)
MAX_LINE_BYTES = 64 << 20
"""Largest line of a .jsonl file, and largest batch, in bytes."""
MAX_FEATURES = 1 << 22
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Count = Annotated[int, Field(ge=0, lt=2**40)]
Index = Annotated[int, Field(ge=0, lt=MAX_FEATURES)]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class FeatureExample(_Row):
    """Tokens with a feature's activations."""

    index: Index = 0
    tokens: Annotated[tuple[Annotated[str, Field(max_length=1000)], ...], Field(min_length=1, max_length=65_535)]
    values: Annotated[tuple[Number, ...], Field(min_length=1, max_length=65_535)]
    bin_min: Number | None = Field(default=None, validation_alias=AliasChoices("bin_min", "binMin"))
    bin_max: Number | None = Field(default=None, validation_alias=AliasChoices("bin_max", "binMax"))
    bin_contains: Number | None = Field(default=None, validation_alias=AliasChoices("bin_contains", "binContains"))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Range of activations that the example was drawn from; None for a top example."""
        if self.bin_min is None or self.bin_max is None or self.bin_contains is None or self.bin_contains < 0:
            return None
        return self.bin_min, self.bin_max


class ForeignFeature(_Row):
    """Statistics of a feature."""

    index: Index = Field(validation_alias=AliasChoices("feature_index", "index"))
    frac_nonzero: Annotated[float, Field(ge=0, le=1)] = 0.0
    freq_hist_data_bar_heights: Annotated[tuple[Number, ...], Field(max_length=1000)] = ()
    freq_hist_data_bar_values: Annotated[tuple[Number, ...], Field(max_length=1000)] = ()
    n_prompts_total: Count = 0
    n_tokens_in_prompt: Count = 0
    dataset: Annotated[str, Field(max_length=1000)] = ""
    activations: tuple[FeatureExample, ...] = ()


class Explanation(_Row):
    """A label."""

    index: Index
    description: Annotated[str, Field(max_length=2000)]


@dataclass
class FeatureSet:
    """Everything that a folder holds."""

    features: dict[int, ForeignFeature] = field(default_factory=dict)
    examples: dict[int, list[FeatureExample]] = field(default_factory=lambda: defaultdict(list))
    labels: dict[int, str] = field(default_factory=dict)
    """The first label of each feature."""
    model_id: str = "unknown"
    layer: int = 0


def read_features(folder: Path) -> FeatureSet:
    """Read all files of a folder.

    Raises:
        NotFoundError: it holds no features.
        UserError: a file is damaged.
    """
    feature_set = FeatureSet()
    _read_batches(feature_set, folder)
    _read_export(feature_set, folder)
    if not feature_set.features:
        raise NotFoundError(f"No features in {folder}. It must hold batch-N.json, or features/N.jsonl.gz.")
    return feature_set


def _read_batches(feature_set: FeatureSet, folder: Path) -> None:
    for path in sorted(folder.glob("batch-*.json")):
        for content in _objects(path, _whole):
            _place(feature_set, content.get("model_id"), content.get("layer"))
            for row in content.get("features") or ():
                _add(feature_set, row, path)


def _read_export(feature_set: FeatureSet, folder: Path) -> None:
    for path in _files(folder, "features"):
        for row in _objects(path, _line):
            _place(feature_set, row.get("modelId"), row.get("layer"))
            _add(feature_set, row, path)
    for path in _files(folder, "activations"):
        for row in _objects(path, _line):
            example = _checked(FeatureExample, row, path)
            feature_set.examples[example.index].append(example)
    for path in _files(folder, "explanations"):
        for row in _objects(path, _line):
            explanation = _checked(Explanation, row, path)
            feature_set.labels.setdefault(explanation.index, explanation.description)


def _place(feature_set: FeatureSet, model_id: object, layer: object) -> None:
    if isinstance(model_id, str) and model_id:
        feature_set.model_id = model_id[:200]
    number = str(layer).partition("-")[0]
    if number.isdecimal() and len(number) < 5:
        feature_set.layer = int(number)


def _add(feature_set: FeatureSet, row: Any, path: Path) -> None:
    feature = _checked(ForeignFeature, row, path)
    feature_set.features[feature.index] = feature.model_copy(update={"activations": ()})
    feature_set.examples[feature.index] += feature.activations


def _checked(kind: type[T], row: Any, path: Path) -> T:
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or kind.__name__
        raise UserError(f"Invalid row in {path}: {where}: {first['msg']}. Download the file again.") from error


def _files(folder: Path, kind: str) -> list[Path]:
    return sorted([*(folder / kind).glob("*.jsonl.gz"), *(folder / kind).glob("*.jsonl")])


def _line(file: BinaryIO) -> bytes:
    return file.readline(MAX_LINE_BYTES)


def _whole(file: BinaryIO) -> bytes:
    return file.read(MAX_LINE_BYTES)


def _objects(path: Path, read: Callable[[BinaryIO], bytes]) -> Iterator[dict[str, Any]]:
    """JSON objects of a file, read piece by piece."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while piece := read(cast(BinaryIO, file)):
                row = json.loads(piece)
                if not isinstance(row, dict):
                    raise ValueError("a row is not an object")
                yield row
    except (ValueError, RecursionError, EOFError, OSError, zlib.error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"Damaged file: {path} ({error}). Download it again.") from error
