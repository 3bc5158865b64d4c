"""A set of features as a run without weights: a run directory with settings and tokenizer, and an index.

Texts are stored as token ids, so the distinct tokens of all examples become the vocabulary of a tokenizer of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, insert
from sqlalchemy.orm import Session

from mxd.trainer.analysis.imported_features.read import FeatureExample, FeatureSet
from mxd.trainer.analysis.indexing.save import index_search
from mxd.trainer.config import Origin, TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.column_types import ACTIVE, TOKEN_IDS
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import (
    AutomaticLabelRecord,
    ExampleRecord,
    ExpertRecord,
    IndexRecord,
    RunRecord,
    SequenceRecord,
    utc_now,
)
from mxd.trainer.storage.run import RUN_FILE, TOKENIZER_FOLDER, Run, runs_folder
from mxd.trainer.utils.files import atomic_directory, atomic_write

LABELLER = "neuronpedia"
UNKNOWN = "[UNK]"
NO_WEIGHTS = "0" * 64
"""Digest in the origin of a run without weights."""
DEFAULT_CONTEXT_LENGTH = 128
TOP_TOKENS = 20


def save_features(feature_set: FeatureSet, name: str, source: Path, data: Path, database: Engine) -> Run:
    """Write a run directory and its index.

    Raises:
        UserError: the run exists.
    """
    folder = runs_folder(data) / name
    if (folder / RUN_FILE).exists():
        raise UserError(f"Run '{name}' already exists. Choose another --name.")
    vocabulary = _vocabulary(feature_set)
    config = _config(feature_set, name, source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(folder) as partial:
        _save_tokenizer(vocabulary, partial / TOKENIZER_FOLDER)
        atomic_write(partial / RUN_FILE, config.model_dump_json(indent=1) + "\n")
    run = Run.load(folder, data)
    with writing(database) as session:
        record = _run_record(config)
        session.add(record)
        session.flush()
        _insert_index(session, record, feature_set, vocabulary, run)
    return run


def _vocabulary(feature_set: FeatureSet) -> dict[str, int]:
    tokens = dict.fromkeys(
        token for examples in feature_set.examples.values() for example in examples for token in example.tokens
    )
    return {token: number for number, token in enumerate(tokens, start=1)}


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


def _run_record(config: TrainConfig) -> RunRecord:
    return RunRecord(
        name=config.name,
        status="finished",
        language_model=config.language_model,
        layer=config.layer,
        method=config.method,
        activation="relu",
        num_experts=config.num_experts,
        k=config.k,
        input_width=0,
        hidden_width=0,
        output_width=0,
        parameters=0,
        text=config.text.dataset,
        seed=0,
        context_length=config.text.context_length,
        target_tokens=config.tokens,
        trained_tokens=config.tokens,
        config=config.model_dump(mode="json"),
        started_at=utc_now(),
        updated_at=utc_now(),
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
    labels = [_label(index, label) for index, label in feature_set.labels.items() if index < record.num_experts]
    for table, rows in (
        (ExpertRecord, experts),
        (SequenceRecord, stored),
        (ExampleRecord, examples),
        (AutomaticLabelRecord, labels),
    ):
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


def _label(index: int, label: str) -> dict[str, Any]:
    return {
        "expert": index,
        "labeller": LABELLER,
        "label": label,
        "balanced_accuracy": 0.0,
        "precision": None,
        "recall": None,
        "test_examples": 0,
        "created_at": utc_now(),
    }


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
        packed["position"], packed["coefficient"] = active_P, values[active_P]
        position = int(values.argmax())
        yield {
            "expert": index,
            "bin": number,
            "rank": ranks[number],
            "sequence": sequences.setdefault(tuple(vocabulary[token] for token in example.tokens), len(sequences)),
            "position": position,
            "coefficient": float(values[position]),
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
    total = sum(counts.values())
    return {
        "expert": index,
        "active_tokens": max(round(density * tokens), total),
        "density": density,
        "mean_activation": _mean(heights, centres),
        "max_activation": largest,
        "p99": min(_percentile(heights, centres) or largest, largest),
        "entropy": -sum(count / total * log2(count / total) for count in counts.values()),
        "top_tokens": [list(pair) for pair in counts.most_common(TOP_TOKENS)],
        "histogram": heights,
        "histogram_high": high,
        "bins": [[low, top, 0] for low, top in _intervals(examples)],
    }


def _mean(heights: Sequence[int], centres: Sequence[float]) -> float:
    total = sum(heights[: len(centres)])
    return sum(count * value for count, value in zip(heights, centres, strict=False)) / total if total else 0.0


def _percentile(heights: Sequence[int], centres: Sequence[float]) -> float:
    """Activation below which 99 % of the histogram lie; 0 for an empty one."""
    reached, total = 0, sum(heights)
    for count, value in zip(heights, centres, strict=False):
        reached += count
        if total and reached >= 0.99 * total:
            return max(0.0, value)
    return 0.0
