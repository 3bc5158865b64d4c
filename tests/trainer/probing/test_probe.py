"""Probing: a planted expert is found, chance is not, and texts are never parted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.runs import World
from trainer.errors import UserError
from trainer.probing.config import ProbeConfig
from trainer.probing.examples import Examples, gather_examples, read_labelled
from trainer.probing.probe import candidates_of, probe_examples, split_of
from trainer.probing.write import probe
from trainer.progress import never, silent
from trainer.run import Run
from trainer.store import ProbeRecord
from trainer.train import train


def planted(examples: int = 400) -> Examples:
    """Column 7 knows class a; all other columns are noise."""
    generator = np.random.default_rng(0)
    labels = generator.choice(["a", "b", "c"], size=examples)
    columns = generator.random((examples, 30)).astype(np.float32)
    columns[:, 7] += 3 * (labels == "a")
    return Examples(labels, np.arange(examples), {"experts": columns, "neurons": columns[:, 10:]})


def config_of(labels: str = "labels.jsonl", **changes: object) -> ProbeConfig:
    return ProbeConfig(labels=labels, candidates=10, **changes)


def test_a_planted_expert_is_found_and_chance_is_not() -> None:
    found = probe_examples(planted(), config_of())
    known, chance = found["experts"].classes["a"], found["neurons"].classes["a"]
    assert (known.expert, known.f1, known.roc_auc) == (7, 1, 1)
    assert 7 in known.five.experts
    assert chance.f1 < 0.6
    assert chance.one.f1_low <= chance.f1 <= chance.one.f1_high
    assert sum(known.inside) + sum(known.outside) == pytest.approx(400 * 0.2, rel=0.3)


def test_candidates_see_training_examples_alone() -> None:
    examples = planted()
    split = split_of(examples.text_E, 0)
    columns = examples.columns["experts"].copy()
    columns[~split.train_E, 3] += 100 * (examples.labels_E == "a")[~split.train_E]
    inside = examples.labels_E == "a"
    assert candidates_of(columns, inside, split.train_E, 10) == candidates_of(
        examples.columns["experts"], inside, split.train_E, 10
    )


def test_a_text_is_never_parted() -> None:
    texts = np.repeat(np.arange(100), 4)
    split = split_of(texts, 0)
    parts = [set(texts[mask]) for mask in (split.train_E, split.validation_E, split.test_E)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 100


@pytest.fixture
def labels(tmp_path: Path) -> str:
    """Two classes that any gate tells apart, and one that is too small."""
    words = {"digits": "1 2 3 4 5 6", "letters": "xyz xyz xyz"}
    rows = [{"label": label, "text": f"{text} {n}"} for label, text in words.items() for n in range(40)]
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [*rows, {"label": "rare", "text": "only one"}]))
    return str(path)


@pytest.mark.parametrize("level", ["text", "token"])
def test_a_run_is_probed_and_kept(world: World, labels: str, level: str) -> None:
    train(world.config(), world.data, world.store, world.language_model)
    run = Run.load("small", world.data)
    for _ in range(2):
        result = probe(run, config_of(labels, level=level), world.language_model, world.store, silent, never)
    assert set(result["classes"]) == {"digits", "letters"}
    assert set(result["kinds"]) == {"experts", "neurons", "random-gate"}
    assert result["kinds"]["neurons"]["classes"]["digits"]["f1"] > 0.8
    assert result["examples"] == 80 * (1 if level == "text" else 4)
    with Session(world.store) as session:
        (record,) = session.scalars(select(ProbeRecord)).all()
        assert record.result == json.loads(json.dumps(result))


def test_columns_are_means_over_the_texts_own_tokens(world: World, labels: str) -> None:
    train(world.config(), world.data, world.store, world.language_model)
    layer = Run.load("small", world.data).layer
    config = config_of(labels)
    examples = gather_examples(config, world.language_model, 1, layer, silent, never)
    first = read_labelled(config)[0]
    ids = [0, *world.language_model.tokenizer(first.text)["input_ids"]]
    routing = layer.route(world.language_model.capture(1, torch.tensor([ids])).input_TI)
    dense = torch.zeros(len(ids), 40).scatter(1, routing.indices_TK, routing.coefficients_TK)[1:].mean(0)
    np.testing.assert_allclose(examples.columns["experts"][0], dense.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert examples.columns["neurons"].shape[1] == 24


def test_labels_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no file"):
        read_labelled(config_of(str(tmp_path / "gone.jsonl")))
    (tmp_path / "one.jsonl").write_text('{"label": "a", "text": "b"}\n' * 20)
    with pytest.raises(UserError, match="at least two"):
        read_labelled(config_of(str(tmp_path / "one.jsonl")))
    with pytest.raises(UserError, match="no column 'label'"):
        (tmp_path / "none.csv").write_text("text,kind\na,b\n")
        read_labelled(config_of(str(tmp_path / "none.csv")))
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UserError, match="no known kind"):
        read_labelled(config_of(str(tmp_path / "a.txt")))
