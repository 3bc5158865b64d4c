"""Privacy fine-tuning: losses, passages, and runs that are fine-tuned on a tiny model."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.data.sequences import sequences
from mxd.trainer.errors import UserError
from mxd.trainer.experimental import ProtectConfig, ProtectedTrainConfig
from mxd.trainer.experimental.protect import (
    OVERLAP_TOKENS,
    RESULT_FILE,
    Passage,
    ReplacementModel,
    combine_gradients,
    drop_overlapping,
    encode,
    kl_from_uniform,
    protect,
    read_passages,
    variations_of,
    write_outcome,
)
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.registry import load_layer
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import Run, runs_folder
from mxd.trainer.storage.run_sets import names_of
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.language_models import sure_language_model, tiny_language_model
from tests.helpers.runs import World, small_world, stop_after


@given(st.integers(0, 2**31), st.integers(2, 40), st.floats(0.1, 20))
def test_the_loss_is_a_kl_divergence(seed: int, vocabulary: int, scale: float) -> None:
    logits_PV = scale * torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    p_PV = logits_PV.softmax(-1)
    uniform = 1 / vocabulary
    from_uniform_P = (uniform * (math.log(uniform) - p_PV.log())).sum(-1)
    assert torch.allclose(kl_from_uniform(logits_PV), from_uniform_P)
    flat_PV = torch.full((1, vocabulary), scale, dtype=torch.float64)
    assert kl_from_uniform(flat_PV).item() == pytest.approx(0, abs=1e-9)
    assert (kl_from_uniform(logits_PV) > -1e-9).all()


@given(st.integers(0, 2**31))
def test_combined_gradients_do_not_conflict(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, other = ([torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator)] for _ in range(2))
    combined = torch.cat([part.flatten() for part in combine_gradients(first, other)])
    a, b = (torch.cat([part.flatten() for part in parts]) for parts in (first, other))
    if a @ b >= 0:
        assert torch.allclose(combined, a + b)
    else:
        assert combined @ a >= -1e-4
        assert combined @ b >= -1e-4
        opposed = a - (a @ b) / (b @ b) * b
        assert abs(opposed @ b) < 1e-4


FOX = "the red fox ran and the old dog sat very very still and sang"


def test_read_passages_from_txt_and_jsonl(tmp_path: Path) -> None:
    text, objects = tmp_path / "passages.txt", tmp_path / "passages.jsonl"
    text.write_text(f"\n{FOX}\nand on\n \n\n\nthe dog sang\n\nthe dog sang\n")
    assert read_passages(text) == [Passage(f"{FOX}\nand on"), Passage("the dog sang")]
    objects.write_text(json.dumps({"text": FOX}) + "\n\n" + json.dumps({"text": "a", "paraphrases": ["b", "c"]}))
    assert read_passages(objects) == [Passage(FOX), Passage("a", ("b", "c"))]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b" \n\n \n", "holds no passages"),
        ("a.txt", b"\xff\xfe", "is not UTF-8"),
        ("a.csv", b"text", "is neither .txt nor .jsonl"),
        ("a.jsonl", b'{"text": "a"}\nnothing', "Line 2 of"),
        ("a.jsonl", b'{"text": "a", "paraphrases": [1]}', "is not a passage"),
        ("a.jsonl", b'{"text": "a", "other": 1}', "is not a passage"),
        ("a.jsonl", b"[" * 100_000, "is not a passage"),
    ],
)
def test_invalid_passage_files(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_passages(path)


def test_scored_predictions() -> None:
    language_model = tiny_language_model()
    texts = [FOX, "the dog sang and sang"]
    encoded = encode(language_model, texts, skip_tokens=2)
    for row, is_scored_T, text in zip(encoded.ids_ST, encoded.is_scored_ST, texts, strict=True):
        ids = prompt_ids(language_model, text)
        assert row[: len(ids)].tolist() == ids
        assert is_scored_T.nonzero().flatten().tolist() == list(range(2, len(ids) - 1))
    assert encoded.predictions == int(encoded.is_scored_ST.sum())
    with pytest.raises(UserError, match="Make it longer"):
        encode(language_model, ["red"], skip_tokens=200)


def test_variations_of_passages() -> None:
    variations = variations_of([Passage("The Fox ran over the hill", ("A fox crossed it",)), Passage("1 2 3")])
    assert variations == {
        "given": ["A fox crossed it"],
        "later beginning": ["ran over the hill", "2 3"],
        "swapped case": ["tHE fOX RAN OVER THE HILL"],
    }
    assert variations_of([Passage("x")]) == {"swapped case": ["X"]}


@given(st.integers(0, 30), st.booleans())
def test_overlapping_sequences_are_dropped(place: int, long_enough: bool) -> None:
    language_model = tiny_language_model()
    passages = encode(language_model, [FOX], skip_tokens=0)
    ids = prompt_ids(language_model, FOX)[1:]
    part = ids[2 : 2 + OVERLAP_TOKENS - (0 if long_enough else 1)]
    other = torch.full((2, 40), ids[0])
    other[1, place : place + len(part)] = torch.tensor(part)
    assert len(drop_overlapping(other, passages)) == (1 if long_enough else 2)


PASSAGES = (
    Passage("the red fox sang and the blue dog sang", ("and so sang the fox that was red",)),
    Passage("a very very old dog sat and the fox ran"),
    Passage("blue and red and old and blue sat the dog"),
)
MOVED = {"scaling_NO", "gate.weight", "gate.bias", "mixing_centre_M"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """MxDs of layers 1 and 2, and a transcoder."""
    world = replace(small_world(tmp_path_factory.mktemp("privacy")), language_model=sure_language_model())
    for name, changes in (("one", {}), ("two", {"layer": 2}), ("other", {"layer": 0, "method": "transcoder"})):
        world.train(name, **changes)
    yield world
    world.database.dispose()


Outcome = tuple[ReplacementModel, dict[str, Any]]


def config(**changes: Any) -> ProtectConfig:
    settings = {"steps": 8, "learning_rate": 0.01, "batch_tokens": 64, "check_every": 2, "attack_steps": 2}
    return ProtectConfig.model_validate({"max_added_loss": 5.0} | settings | changes)


def other_text(world: World, tokens: int = 1024) -> torch.Tensor:
    comparison = sequences(world.text, world.language_model.tokenizer, tokens, 0, "as-is")
    return torch.from_numpy(np.stack(list(comparison))).long()


def protected(
    world: World,
    settings: ProtectConfig,
    runs: Sequence[str] = ("one",),
    pattern: str = "{run}-private",
    callbacks: Callbacks = NO_CALLBACKS,
) -> Outcome:
    loaded = [Run.load(name, world.data) for name in runs]
    names = names_of(loaded, pattern)
    text = other_text(world)
    return protect(world.language_model, loaded, names, PASSAGES, text, settings, callbacks=callbacks)


def write(world: World, outcome: Outcome, settings: ProtectConfig) -> None:
    runs = [Run.load(name, world.data) for name in outcome[1]["parents"]]
    write_outcome(runs, *outcome, settings, world.data, world.database)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_layer(folder).state_dict()


def test_only_c_and_the_gate_are_trained_and_the_centre_follows(trained: World) -> None:
    files = {path: path.read_bytes() for path in runs_folder(trained.data).glob("*/*.*") if path.is_file()}
    original = {name: value.clone() for name, value in trained.language_model.module.state_dict().items()}
    settings = config()
    outcome = protected(trained, settings)
    _, result = outcome
    write(trained, outcome, settings)
    before, after = (weights(runs_folder(trained.data) / name) for name in ("one", "one-private"))
    assert {name for name in before if not torch.equal(before[name], after[name])} == MOVED
    now = trained.language_model.module.state_dict()
    assert all(torch.equal(value, now[name]) for name, value in original.items())
    assert all(path.read_bytes() == content for path, content in files.items())
    first, last = result["protected"]["before"], result["protected"]["after"]
    assert last["confidence_distance"] < first["confidence_distance"]
    assert last["entropy"] > first["entropy"]
    assert list(result["variations"]) == ["given", "later beginning", "swapped case"]
    assert result["relearning"]["passages"] == 1
    new_run = Run.load("one-private", trained.data)
    assert isinstance(new_run.config, ProtectedTrainConfig)
    assert (new_run.config.parents, new_run.config.privacy) == (("one",), settings)
    assert {record.name: record.status for record in trained.rows(RunRecord)}["one-private"] == "finished"
    assert json.loads((new_run.folder / RESULT_FILE).read_text()) == result
    written = "".join(path.read_text() for path in new_run.folder.glob("*.json"))
    assert not any(passage.text in written for passage in PASSAGES)
    with pytest.raises(UserError, match="Run 'one-private' already exists"):
        write(trained, outcome, settings)


def test_the_best_step_of_several_layers_is_the_least_confident_within_the_loss_limit(trained: World) -> None:
    settings = config(steps=12, max_added_loss=0.02)
    _, result = protected(trained, settings, runs=("one", "two"))
    assert result["runs"] == ["one-private", "two-private"]
    allowed = [one for one in result["eval_points"] if one["loss_increase"] <= 0.02]
    least = min(allowed, key=lambda one: one["protected"]["confidence_distance"])
    assert result["best_step"] == least["step"]
    assert result["protected"]["after"] == least["protected"]


def test_cancelling_writes_nothing(trained: World) -> None:
    runs_before = sorted(runs_folder(trained.data).iterdir())
    with pytest.raises(UserError, match="nothing was written"):
        protected(trained, config(), callbacks=stop_after(3))
    assert sorted(runs_folder(trained.data).iterdir()) == runs_before


def test_the_gradient_equals_finite_differences(trained: World) -> None:
    model = ReplacementModel.from_runs(trained.language_model, [Run.load("one", trained.data)])
    text = encode(trained.language_model, [passage.text for passage in PASSAGES], skip_tokens=2)
    _, gradient = model.gradient(text, kl_from_uniform, 0.75)
    place = next(place for place, one in enumerate(model.trainable_parameters()) if one is model.layers[1].table)
    size, direction = 0.005, gradient[place] / gradient[place].norm()
    ends = []
    for sign in (1, -1):
        changed = model.copy()
        with torch.no_grad():
            changed.trainable_parameters()[place].add_(sign * size * direction)
        ends.append(changed.gradient(text, kl_from_uniform, 0.75)[0])
    slope = 0.75 * (ends[0] - ends[1]) / (2 * size)
    assert slope == pytest.approx(gradient[place].norm().item(), rel=0.02)
