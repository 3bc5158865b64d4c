"""Features of other people: both formats are read, tokens keep their texts, and damaged files are named."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from mxd.trainer.analysis.imported_features import read_features, save_features
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, ExampleRecord

TOKENS = [" The", "\n", "é", " fox", "▁x"]
EXAMPLE = {"tokens": TOKENS, "values": [0, 0, 0.5, 2.0, 0]}


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a compressed file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def write_batches(folder: Path) -> None:
    """Write one batch as SAEDashboard does."""
    activations = [
        {**EXAMPLE, "bin_min": -1, "bin_max": 2.0, "bin_contains": -1, "qualifying_token_index": 3},
        {**EXAMPLE, "bin_min": 0.5, "bin_max": 2.5, "bin_contains": 0.4, "qualifying_token_index": 3},
    ]
    feature = {"feature_index": 2, "frac_nonzero": 0.25, "n_prompts_total": 10, "n_tokens_in_prompt": 16}
    content = {"model_id": "gemma-2-2b", "layer": 5, "features": [{**feature, "activations": activations}]}
    folder.mkdir()
    (folder / "batch-0.json").write_text(json.dumps(content))


def write_export(folder: Path) -> None:
    """Write the same feature as Neuronpedia exports it."""
    ids = {"modelId": "gemma-2-2b", "layer": "5-res-16k", "index": "2"}
    write_lines(folder / "features" / "batch-0.jsonl.gz", [{**ids, "frac_nonzero": 0.25}])
    top, drawn = (-1, 2.0, -1), (0.5, 2.5, 0.4)
    rows = [{**ids, **EXAMPLE, "binMin": a, "binMax": b, "binContains": c} for a, b, c in (top, drawn)]
    write_lines(folder / "activations" / "batch-0.jsonl.gz", rows)


@pytest.mark.parametrize("write", [write_batches, write_export])
def test_examples_and_labels_are_stored(tmp_path: Path, write: Any) -> None:
    source = tmp_path / "theirs"
    write(source)
    write_lines(source / "explanations" / "batch-0.jsonl.gz", [{"index": "2", "description": "foxes"}])
    database = open_trainer_database(sqlite_url(tmp_path))
    run = save_features(read_features(source), "theirs", source, tmp_path, database)
    assert (run.config.language_model, run.config.layer, run.config.num_experts) == ("gemma-2-2b", 5, 3)
    assert token_texts(run.tokenizer, [1, 2, 3, 4, 5]) == TOKENS
    with Session(database) as session:
        expert = session.get_one(ExpertRecord, (1, 2))
        assert (expert.density, expert.max_activation) == (0.25, 2.0)
        examples = session.query(ExampleRecord).order_by(ExampleRecord.bin).all()
        assert [(it.bin, it.position, it.activation) for it in examples] == [(0, 3, 2.0), (1, 3, 2.0)]
        assert session.get_one(AutomaticLabelRecord, (1, 2, "neuronpedia")).label == "foxes"
    database.dispose()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"features": [{"feature_index": -1}]}', "index"),
        ('{"features": [{"feature_index": 1, "activations": [{"tokens": ["a"], "values": [1e400]}]}]}', "values"),
        ("{", "Damaged file"),
        ("[]", "Damaged file"),
        ('{"features": []}', "No features"),
    ],
)
def test_damaged_files(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "batch-0.json").write_text(content)
    with pytest.raises(UserError, match=sentence):
        read_features(tmp_path)
