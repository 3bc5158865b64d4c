"""Protecting passages end to end on a tiny language model: what moves, what stays, what is written and what is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.language_models import sure_language_model
from tests.runs import World, small_world
from trainer.config import LayerConfig
from trainer.errors import UserError
from trainer.in_place import names_of, refuse_apart
from trainer.language_model import LanguageModel
from trainer.layers.registry import build_layer, load_layer
from trainer.privacy.descent import Descent, Material
from trainer.privacy.newton import Block, only_layer
from trainer.privacy.objective import kl_from_uniform
from trainer.privacy.passages import Passage, encode
from trainer.privacy.placed import Placed, next_token, whole
from trainer.privacy.protect import Outcome, Protection, carry_out
from trainer.privacy.write import write_outcome
from trainer.protect_config import NewtonConfig, ProtectConfig
from trainer.run import Run, runs_folder
from trainer.store import EvaluationRecord, RunRecord
from trainer.text import sequences
from trainer.train import train

PASSAGES = (
    Passage("the red fox sang and the blue dog sang", ("and so sang the fox that was red",)),
    Passage("a very very old dog sat and the fox ran"),
    Passage("blue and red and old and blue sat the dog"),
)
MOVED = {"scaling_NO", "gate.weight", "gate.bias"}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """MxDs of layers 1 and 2, and a transcoder."""
    world = replace(small_world(tmp_path_factory.mktemp("privacy")), language_model=sure_language_model())
    for name, changes in (("one", {}), ("two", {"layer": 2}), ("other", {"layer": 0, "method": "transcoder"})):
        train(world.config(name, **changes), world.data, world.store, world.language_model)
    yield world
    world.store.dispose()


def config(**changes: Any) -> ProtectConfig:
    settings = {"steps": 8, "learning_rate": 0.01, "batch": 64, "check_every": 2, "most_added": 5.0, "attack_steps": 2}
    return ProtectConfig.model_validate(settings | changes)


def other_text(world: World, tokens: int = 1024) -> torch.Tensor:
    found = sequences(world.text, world.language_model.tokenizer, tokens, 0, "as-is")
    return torch.from_numpy(np.stack(list(found))).long()


def protection(
    world: World, chosen: ProtectConfig, runs: Sequence[str] = ("one",), pattern: str = "{run}-private"
) -> Protection:
    loaded = [Run.load(name, world.data) for name in runs]
    names = names_of(loaded, pattern)
    return Protection(world.language_model, loaded, names, PASSAGES, other_text(world), chosen)


def write(world: World, outcome: Outcome, chosen: ProtectConfig) -> dict[str, Any]:
    runs = [Run.load(name, world.data) for name in outcome.result.began_as]
    return write_outcome(runs, outcome, chosen, "text.jsonl", world.data, world.store)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_layer(folder).state_dict()


def test_c_and_gate_move_and_nothing_else(fitted: World) -> None:
    files = {path: path.read_bytes() for path in runs_folder(fitted.data).glob("*/*.*") if path.is_file()}
    original = {name: value.clone() for name, value in fitted.language_model.module.state_dict().items()}
    chosen = config()
    outcome = carry_out(protection(fitted, chosen))
    result = write(fitted, outcome, chosen)
    before, after = (weights(runs_folder(fitted.data) / name) for name in ("one", "one-private"))
    assert {name for name in before if not torch.equal(before[name], after[name])} == MOVED
    now = fitted.language_model.module.state_dict()
    assert all(torch.equal(value, now[name]) for name, value in original.items())
    assert all(path.read_bytes() == content for path, content in files.items())
    found = outcome.result.protected
    assert found.after.confidence_distance < found.before.confidence_distance
    assert found.after.entropy > found.before.entropy
    assert list(outcome.result.otherwise) == ["given", "later beginning", "swapped case"]
    assert outcome.result.relearning is not None
    assert outcome.result.relearning.passages == 1
    made = Run.load("one-private", fitted.data)
    assert (made.config.began_as, made.config.protected) == (("one",), chosen)
    with Session(fitted.store) as session:
        record = session.scalars(select(EvaluationRecord)).one()
        assert record.subject == "privacy: one-private"
        assert session.scalars(select(RunRecord.status).where(RunRecord.name == "one-private")).one() == "finished"
        assert record.result == result
        written = f"{record.result}{record.settings}{record.text}"
    assert not any(passage.text in written for passage in PASSAGES)
    with pytest.raises(UserError, match="The run one-private exists"):
        write(fitted, outcome, chosen)


def test_several_layers_move_together(fitted: World) -> None:
    chosen = config(steps=2)
    outcome = carry_out(protection(fitted, chosen, runs=("one", "two")))
    assert outcome.result.runs == ("one-private", "two-private")
    for index, name in ((1, "one"), (2, "two")):
        before, after = weights(runs_folder(fitted.data) / name), outcome.placed.layers[index].state_dict()
        assert {key for key in before if not torch.equal(before[key], after[key])} == MOVED


def test_the_step_that_is_kept_is_the_least_sure_of_those_that_cost_little(fitted: World) -> None:
    chosen = config(steps=12, most_added=0.02)
    outcome = carry_out(protection(fitted, chosen))
    allowed = [one for one in outcome.result.path if one.added <= 0.02]
    least = min(allowed, key=lambda one: one.protected.confidence_distance)
    assert outcome.result.kept_step == least.step
    assert outcome.result.protected.after == least.protected


def test_where_no_step_helps_nothing_is_written(fitted: World) -> None:
    with pytest.raises(UserError, match="No step made the passages less sure"):
        carry_out(protection(fitted, config(steps=2, learning_rate=1e-12)))


def test_stopped_work_leaves_nothing(fitted: World) -> None:
    there = sorted(runs_folder(fitted.data).iterdir())
    asked = iter([False, False, True])
    with pytest.raises(UserError, match="nothing was written"):
        carry_out(protection(fitted, config()), should_stop=lambda: next(asked))
    assert sorted(runs_folder(fitted.data).iterdir()) == there


def test_a_write_that_fails_leaves_no_half_run(fitted: World, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = config()
    outcome = carry_out(protection(fitted, chosen, pattern="{run}-half"))
    monkeypatch.setattr("trainer.privacy.write.copy_tokenizer", _fail)
    there = sorted(runs_folder(fitted.data).iterdir())
    with pytest.raises(RuntimeError):
        write(fitted, outcome, chosen)
    assert sorted(runs_folder(fitted.data).iterdir()) == there


def _fail(_source: Path, _target: Path) -> None:
    raise RuntimeError("the power is off")


def test_the_gradient_is_that_of_finite_differences(fitted: World) -> None:
    placed = Placed.of(fitted.language_model, [Run.load("one", fitted.data)])
    text = encode(fitted.language_model, [passage.text for passage in PASSAGES], after=2)
    _, gradient = placed.gradient(text, lambda logits_PV, _next_P: kl_from_uniform(logits_PV), 0.75)
    place = next(place for place, one in enumerate(placed.moved()) if one is placed.layers[1].table)
    values, size = placed.values(), 0.02
    direction = gradient[place] / gradient[place].norm()
    ends = []
    for sign in (1, -1):
        placed.take([it + sign * size * direction if n == place else it for n, it in enumerate(values)])
        ends.append(placed.gradient(text, lambda logits_PV, _next_P: kl_from_uniform(logits_PV), 0.75)[0])
    slope = 0.75 * (ends[0] - ends[1]) / (2 * size)
    assert slope == pytest.approx(gradient[place].norm().item(), rel=0.02)


def test_only_mxds_of_one_language_model_are_taken(fitted: World) -> None:
    with pytest.raises(UserError, match="other is a transcoder"):
        protection(fitted, config(), runs=("other",))
    with pytest.raises(UserError, match="same layer, 1"):
        refuse_apart([Run.load("one", fitted.data)] * 2)
    with pytest.raises(UserError, match="2 runs would be named x"):
        names_of([Run.load(name, fitted.data) for name in ("one", "two")], "x")
    with pytest.raises(UserError, match="at least 8 are needed"):
        Material.split(encode(fitted.language_model, ["the old dog"], 1), other_text(fitted, 64))


def test_descent_reads_all_other_text_in_turn(fitted: World) -> None:
    placed = Placed.of(fitted.language_model, [Run.load("one", fitted.data)])
    material = Material.split(encode(fitted.language_model, ["the old dog"], 1), other_text(fitted, 320))
    descent = Descent(placed, material, config(batch=48))
    read = []
    for taken in range(5):
        descent.taken = taken
        read.append(descent._batch().ids_ST)
    seen = {tuple(row) for rows in read for row in rows.tolist()}
    assert seen == {tuple(row) for row in material.fit.tolist()}


NEWTON = NewtonConfig(experts=4, damping=1.0)


def test_the_hessian_is_that_of_finite_differences(fitted: World) -> None:
    placed = Placed.of(fitted.language_model, [Run.load("one", fitted.data)])
    material = Material.split(encode(fitted.language_model, [PASSAGES[0].text], 2), other_text(fitted, 256))
    block, chosen, size = Block(placed, (3, 7, 11)), config(), 1e-2  # norms of Llama are in float32
    at_D = torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64)
    found = block.quadratic(at_D, material, chosen, NEWTON, lambda: None)
    rows, slopes = [], []
    for unit in torch.eye(3, dtype=torch.float64):
        ends = [block.quadratic(at_D + sign * size * unit, material, chosen, NEWTON, lambda: None) for sign in (1, -1)]
        slopes.append((ends[0].value - ends[1].value) / (2 * size))
        rows.append((ends[0].gradient_D - ends[1].gradient_D) / (2 * size) - NEWTON.damping * unit)
    assert torch.allclose(torch.stack(rows), found.hessian_DD, rtol=0.02, atol=1e-5)
    assert torch.allclose(torch.tensor(slopes, dtype=torch.float64), found.gradient_D, rtol=0.01, atol=1e-5)
    fit = whole(material.fit[: chosen.batch // 16])
    unsure, _ = placed.gradient(material.passages, lambda logits_PV, _next_P: kl_from_uniform(logits_PV), 1.0)
    expected = 0.75 * unsure + 0.25 * placed.gradient(fit, next_token, 1.0)[0]
    at_zero = block.quadratic(0 * at_D, material, chosen, NEWTON, lambda: None)
    assert at_zero.value == pytest.approx(expected, rel=1e-4)


def test_a_newton_step_scales_a_few_experts(fitted: World) -> None:
    chosen = config(newton=NEWTON)
    outcome = carry_out(protection(fitted, chosen, runs=("two",)))
    before, after = weights(runs_folder(fitted.data) / "two"), outcome.placed.layers[2].state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"scaling_NO"}
    changed = [n for n in range(40) if not torch.equal(before["scaling_NO"][n], after["scaling_NO"][n])]
    assert 0 < len(changed) <= 4
    certificate = outcome.result.certificate
    assert certificate is not None
    assert certificate.status == "estimated"
    assert certificate.hessian_lipschitz > 0
    assert certificate.sigma == 0
    assert outcome.result.kept_step == 1
    assert outcome.result.protected.after.divergence != outcome.result.protected.before.divergence


def test_a_given_constant_brings_its_noise(fitted: World) -> None:
    given = NEWTON.model_copy(update={"hessian_lipschitz": 0.5})
    outcome = carry_out(protection(fitted, config(newton=given, attack_steps=0), runs=("two",)))
    certificate = outcome.result.certificate
    assert certificate is not None
    assert (certificate.status, certificate.sigma) == ("holds", certificate.calibrated_sigma)
    assert certificate.sigma > 0
    assert outcome.result.relearning is None


def test_a_newton_step_is_of_one_layer(fitted: World) -> None:
    with pytest.raises(UserError, match="name one run"):
        protection(fitted, config(newton=NEWTON), runs=("one", "two"))


def test_a_newton_step_is_refused_where_a_run_writes_several_layers() -> None:
    wide = LayerConfig(
        method="cross-layer-mxd",
        span=2,
        input_width=4,
        hidden_width=8,
        output_width=8,
        num_experts=6,
        k=2,
        activation="gelu",
        encoder="mlp",
    )
    with pytest.raises(UserError, match="a run that writes a single one"):
        only_layer(Placed(cast(LanguageModel, None), {0: build_layer(wide)}))
