"""Features of a Neuronpedia export, or of SAEDashboard's batches, as a run without weights.

batch-N.json                    SAEDashboard: features with their activations
features/N.jsonl.gz             Neuronpedia: one feature per line
activations/N.jsonl.gz          their examples
explanations/N.jsonl.gz         their labels; both formats may have them

Texts are stored as token ids, so the distinct tokens of all examples become the vocabulary of a tokenizer of their own.
"""

import gzip
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import log2
from operator import methodcaller
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar, cast

import numpy as np
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Engine, insert
from sqlalchemy.orm import Session

from mxd.trainer.analysis.indexing.build import index_search
from mxd.trainer.config.training import Origin, TextConfig, TrainConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.column_types import ACTIVE, TOKEN_IDS
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import (
    AutomaticLabelRecord,
    ExampleRecord,
    IndexRecord,
    RunRecord,
    SequenceRecord,
    utc_now,
)
from mxd.trainer.storage.run import RUN_FILE, TOKENIZER_FOLDER, Run, runs_folder
from mxd.trainer.storage.run_records import update_record
from mxd.trainer.utils.files import atomic_directory, atomic_write

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
    index: Index = Field(validation_alias=AliasChoices("feature_index", "index"))
    frac_nonzero: Annotated[float, Field(ge=0, le=1)] = 0.0
    freq_hist_data_bar_heights: Annotated[tuple[Number, ...], Field(max_length=1000)] = ()
    freq_hist_data_bar_values: Annotated[tuple[Number, ...], Field(max_length=1000)] = ()
    n_prompts_total: Count = 0
    n_tokens_in_prompt: Count = 0
    dataset: Annotated[str, Field(max_length=1000)] = ""
    activations: tuple[FeatureExample, ...] = ()


class Explanation(_Row):
    index: Index
    description: Annotated[str, Field(max_length=2000)]


@dataclass
class FeatureSet:
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
    for path in sorted(folder.glob("batch-*.json")):
        for content in _objects(path, methodcaller("read", MAX_LINE_BYTES)):
            _place(feature_set, content.get("model_id"), content.get("layer"))
            for row in content.get("features") or ():
                _add(feature_set, row, path)
    for path, row in _lines(folder, "features"):
        _place(feature_set, row.get("modelId"), row.get("layer"))
        _add(feature_set, row, path)
    for path, row in _lines(folder, "activations"):
        example = _checked(FeatureExample, row, path)
        feature_set.examples[example.index].append(example)
    for path, row in _lines(folder, "explanations"):
        explanation = _checked(Explanation, row, path)
        feature_set.labels.setdefault(explanation.index, explanation.description)
    if not feature_set.features:
        raise NotFoundError(f"No features in {folder}. It must hold batch-N.json, or features/N.jsonl.gz.")
    return feature_set


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


def _lines(folder: Path, kind: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted([*(folder / kind).glob("*.jsonl.gz"), *(folder / kind).glob("*.jsonl")]):
        for row in _objects(path, methodcaller("readline", MAX_LINE_BYTES)):
            yield path, row


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


LABELLER = "neuronpedia"
UNKNOWN = "[UNK]"
NO_WEIGHTS = "0" * 64
"""Digest in the origin of a run without weights."""
DEFAULT_CONTEXT_LENGTH = 128
TOP_TOKENS = 20


def save_features(feature_set: FeatureSet, name: str, source: Path, data: Path, database: Engine) -> Run:
    """Write a run directory and its index. Raises UserError if the run exists."""
    folder = runs_folder(data) / name
    if (folder / RUN_FILE).exists():
        raise UserError(f"Run '{name}' already exists. Choose another --name.")
    examples = (example for examples in feature_set.examples.values() for example in examples)
    tokens = dict.fromkeys(token for example in examples for token in example.tokens)
    vocabulary = {token: number for number, token in enumerate(tokens, start=1)}
    config = _config(feature_set, name, source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(folder) as partial:
        _save_tokenizer(vocabulary, partial / TOKENIZER_FOLDER)
        atomic_write(partial / RUN_FILE, config.model_dump_json(indent=1) + "\n")
    run = Run.load(folder, data)
    with writing(database) as session:
        widths = dict.fromkeys(("input_width", "hidden_width", "output_width", "parameters"), 0)
        facts = {"status": "finished", "activation": "relu", "num_experts": config.num_experts, "k": config.k}
        record = update_record(session, run, config.tokens, **facts, **widths)
        record.trained_tokens = config.tokens
        _insert_index(session, record, feature_set, vocabulary, run)
    return run


def _save_tokenizer(vocabulary: dict[str, int], folder: Path) -> None:
    """Save a tokenizer whose tokens decode to exactly these texts, also inside sequences."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # Byte-level names keep spaces and unprintable characters.
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    names = {UNKNOWN: 0}
    for token, number in vocabulary.items():
        names["".join(piece for piece, _ in byte_level.pre_tokenize_str(token)) or f"[EMPTY {number}]"] = number
    tokenizer = Tokenizer(models.WordLevel(names, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN, bos_token=UNKNOWN).save_pretrained(folder)


def _config(feature_set: FeatureSet, name: str, source: Path) -> TrainConfig:
    first = next(iter(feature_set.features.values()))
    count = max(feature_set.features) + 1
    length = max(8, min(65_536, first.n_tokens_in_prompt or DEFAULT_CONTEXT_LENGTH))
    return TrainConfig(
        name=name,
        language_model=feature_set.model_id,
        layer=feature_set.layer,
        text=TextConfig(dataset=first.dataset or "not stated", context_length=length),
        tokens=first.n_prompts_total * first.n_tokens_in_prompt,
        method="jumprelu-transcoder",
        num_experts=count,
        k=count,
        origin=Origin(format="neuronpedia", source=str(source), part="", sha256=NO_WEIGHTS),
    )


def _insert_index(
    session: Session, record: RunRecord, feature_set: FeatureSet, vocabulary: dict[str, int], run: Run
) -> None:
    sequences: dict[tuple[int, ...], int] = {}
    examples = [
        row for index in sorted(feature_set.examples) for row in _examples(index, feature_set, vocabulary, sequences)
    ]
    tokens = max(1, run.config.tokens)
    experts = [_expert(index, feature_set, vocabulary, tokens) for index in range(record.num_experts)]
    stored = [
        {"sequence": number, "token_ids": np.array(ids, TOKEN_IDS).tobytes()} for ids, number in sequences.items()
    ]
    untested = {"balanced_accuracy": 0.0, "precision": None, "recall": None, "test_examples": 0}
    labels = [
        {"expert": index, "labeller": LABELLER, "label": label, **untested, "created_at": utc_now()}
        for index, label in feature_set.labels.items()
        if index < record.num_experts
    ]
    tables = {ExpertRecord: experts, SequenceRecord: stored, ExampleRecord: examples, AutomaticLabelRecord: labels}
    for table, rows in tables.items():
        if rows:
            session.execute(insert(table), [{"run_id": record.id, **row} for row in rows])
    index_search(session, record.id, run.tokenizer)
    session.add(
        IndexRecord(
            run_id=record.id,
            text=run.config.text.dataset,
            seed=0,
            tokens=tokens,
            context_length=run.config.text.context_length,
            active_experts=sum(row["active_tokens"] > 0 for row in experts),
            examples=len(examples),
            normalized_mse=0.0,
            created_at=utc_now(),
        )
    )


def _intervals(examples: Sequence[FeatureExample]) -> list[tuple[float, float]]:
    """Ranges of activations that examples were drawn from, highest first."""
    return sorted({example.interval for example in examples if example.interval is not None}, reverse=True)


def _examples(
    index: int, feature_set: FeatureSet, vocabulary: dict[str, int], sequences: dict[tuple[int, ...], int]
) -> Iterator[dict[str, Any]]:
    intervals = _intervals(feature_set.examples[index])
    ranks: Counter[int] = Counter()
    for example in feature_set.examples[index]:
        values = np.array(example.values[: len(example.tokens)], np.float32)
        active_P = np.flatnonzero(values > 0)
        if not len(active_P):
            continue
        number = 0 if example.interval is None else 1 + intervals.index(example.interval)
        packed = np.zeros(len(active_P), ACTIVE)
        packed["position"], packed["activation"] = active_P, values[active_P]
        position = int(values.argmax())
        yield {
            "expert": index,
            "bin": number,
            "rank": ranks[number],
            "sequence": sequences.setdefault(tuple(vocabulary[token] for token in example.tokens), len(sequences)),
            "position": position,
            "activation": float(values[position]),
            "active": packed.tobytes(),
        }
        ranks[number] += 1


def _expert(index: int, feature_set: FeatureSet, vocabulary: dict[str, int], tokens: int) -> dict[str, Any]:
    """Statistics, as far as the feature has them; the rest is of its examples."""
    feature, examples = feature_set.features.get(index), feature_set.examples.get(index, [])
    counts = Counter(
        vocabulary[token]
        for example in examples
        for token, value in zip(example.tokens, example.values, strict=False)
        if value > 0
    )
    heights = [max(0, round(height)) for height in feature.freq_hist_data_bar_heights] if feature else []
    centres = list(feature.freq_hist_data_bar_values)[: len(heights)] if feature else []
    largest = max([0.0, *(value for example in examples for value in example.values)])
    high = max(largest, *centres, 0.0) if centres else largest
    density = feature.frac_nonzero if feature else 0.0
    total, in_bins = sum(counts.values()), sum(heights[: len(centres)])
    # Activation below which 99 % of the histogram lie.
    place = int(np.searchsorted(np.cumsum(heights[: len(centres)]), 0.99 * sum(heights)))
    p99 = max(0.0, centres[place]) if sum(heights) and place < len(centres) else 0.0
    weighted = sum(count * value for count, value in zip(heights, centres, strict=False))
    return {
        "expert": index,
        "active_tokens": max(round(density * tokens), total),
        "density": density,
        "mean_activation": weighted / in_bins if in_bins else 0.0,
        "max_activation": largest,
        "p99": min(p99 or largest, largest),
        "entropy": -sum(count / total * log2(count / total) for count in counts.values()),
        "top_tokens": [list(pair) for pair in counts.most_common(TOP_TOKENS)],
        "histogram": heights,
        "histogram_high": high,
        "bins": [[low, top, 0] for low, top in _intervals(examples)],
    }
