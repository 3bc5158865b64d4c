"""Runs that write several layers, in use: each against whole forward passes with all of them replaced."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.runs import World, small_world
from trainer.circuits.tracing import trace
from trainer.config import Edit, EvaluateConfig, InfluenceConfig, Sampling, SteeringConfig
from trainer.effects import direct_effects
from trainer.errors import UserError
from trainer.evaluation.added import evaluate_added
from trainer.evaluation.evaluate import Measured, Session, evaluate, evaluate_together
from trainer.evaluation.result import Added, Evaluation, Together
from trainer.influence.build import build_influence
from trainer.language_model import Capture
from trainer.layers.cross_layer import GluCrossLayer
from trainer.layers.mxd import MxD
from trainer.layers.registry import load_layer
from trainer.metrics import normalised_mse
from trainer.predictions import predict
from trainer.progress import never, silent
from trainer.routing import prompt_ids, route
from trainer.run import Run
from trainer.steering import NewToken, steer
from trainer.train import train
from trainer.whole.config import FinetuneConfig
from trainer.whole.finetune import configs_of

SPAN = 2
TEXT = "the old fox sang"
CROSS: dict[str, Any] = {"method": "cross-layer-mxd", "span": SPAN}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """``cross`` writes layers 1 and 2; ``below``, ``own`` and ``above`` are MxDs of layers 0, 1 and 2."""
    world = small_world(tmp_path_factory.mktemp("cross"))
    changes: dict[str, dict[str, Any]] = {"cross": CROSS, "below": {"layer": 0}, "own": {}, "above": {"layer": 2}}
    for name, changed in changes.items():
        train(world.config(name, **changed), world.data, world.store, world.language_model)
    yield world
    world.store.dispose()


def run_of(world: World, name: str = "cross") -> Run:
    return Run.load(name, world.data)


def session_of(world: World) -> Session:
    config = EvaluateConfig(text=world.text, tokens=320, resamples=200, prompts=4)
    return Session.open(config, world.language_model, silent, never)


def test_saved_is_loaded_and_its_error_was_that_of_both_layers(fitted: World) -> None:
    run = run_of(fitted)
    layer = load_layer(run.folder)
    assert isinstance(layer, GluCrossLayer)
    assert (layer.span, layer.config.output_width, tuple(run.config.layers)) == (2, 32, (1, 2))
    session = session_of(fitted)
    captured = fitted.language_model.captures([1, 2], session.ids_SL)
    whole = Capture.spanning(captured, [1, 2])
    assert torch.equal(whole.input_TI, captured[1].input_TI)
    answers = layer.parts(layer(captured[1].input_TI).output_TO)
    errors = [normalised_mse(answers[place], captured[place + 1].output_TO).item() for place in range(2)]
    result = evaluate(session, run, seen_text=True).result
    assert isinstance(result, Evaluation)
    assert [one.value for one in result.normalised_mse_of_layers] == pytest.approx(errors, rel=1e-4)
    assert result.normalised_mse == pytest.approx(sum(errors) / 2, rel=1e-4)
    assert all(one.low <= one.value <= one.high for one in result.normalised_mse_of_layers)
    assert (result.layer, result.layers) == (1, (1, 2))


@pytest.mark.parametrize("steps", [5, 13])
def test_stopped_and_resumed_is_bit_for_bit_uninterrupted(world: World, steps: int) -> None:
    taken = iter(range(1000))
    stopped = train(
        world.config("parts", **CROSS),
        world.data,
        world.store,
        world.language_model,
        should_stop=lambda: next(taken) >= steps - 1,
    )
    assert stopped.status == "stopped"
    train(world.config("parts", **CROSS), world.data, world.store, world.language_model, resume="if-any")
    train(world.config("whole", **CROSS), world.data, world.store, world.language_model)
    parts, whole = (load_file(world.data / "runs" / name / "layer.safetensors") for name in ("parts", "whole"))
    assert all(torch.equal(parts[name], whole[name]) for name in whole)


def answered_by_hand(world: World, run: Run, ids_SL: Tensor) -> Tensor:
    """Logits with both MLPs replaced, from what was read at layer 1."""
    read: list[Tensor] = []

    def first(x_BTI: Tensor, _mlp: Any) -> Tensor:
        read[:] = run.layer(x_BTI.flatten(0, 1)).output_TO.unflatten(0, x_BTI.shape[:2]).chunk(2, dim=-1)
        return read[0]

    with world.language_model.stand_in({1: first, 2: lambda _x, _mlp: read[1]}), torch.no_grad():
        return world.language_model.logits(ids_SL)


def loss_of(logits_SLV: Tensor, ids_SL: Tensor) -> float:
    return float(-logits_SLV[:, :-1].log_softmax(-1).gather(2, ids_SL[:, 1:, None]).mean())


def test_evaluating_replaces_exactly_its_layers(fitted: World) -> None:
    run, session = run_of(fitted), session_of(fitted)
    result = evaluate(session, run, seen_text=True).result
    assert isinstance(result, Evaluation)
    wanted = answered_by_hand(fitted, run, session.ids_SL)
    assert result.ce_replaced == pytest.approx(loss_of(wanted, session.ids_SL), rel=1e-5)
    with fitted.language_model.replace({1: run.layer}):
        torch.testing.assert_close(fitted.language_model.logits(session.ids_SL), wanted)
    silenced = dict.fromkeys((1, 2), lambda x, _mlp: torch.zeros_like(x))
    with fitted.language_model.stand_in(silenced):
        zeroed = loss_of(fitted.language_model.logits(session.ids_SL), session.ids_SL)
    assert result.ce_zeroed == pytest.approx(zeroed, rel=1e-5)
    assert result.ce_original == pytest.approx(
        loss_of(fitted.language_model.logits(session.ids_SL), session.ids_SL), rel=1e-5
    )


def measured_with(world: World, session: Session, names: tuple[str, ...]) -> tuple[Measured, Measured]:
    runs = [run_of(world, name) for name in names]
    return evaluate_together(session, runs, [0.0] * len(runs)), evaluate_added(session, runs, [0.0] * len(runs))


def test_it_stands_beside_other_layers_and_not_beside_its_own(fitted: World) -> None:
    session, run = session_of(fitted), run_of(fitted)
    together, added = measured_with(fitted, session, ("below", "cross"))
    with fitted.language_model.replace({0: run_of(fitted, "below").layer, 1: run.layer}):
        wanted = loss_of(fitted.language_model.logits(session.ids_SL), session.ids_SL)
    assert isinstance(together.result, Together)
    assert isinstance(added.result, Added)
    assert together.result.ce_replaced == pytest.approx(wanted, rel=1e-5)
    assert added.result.steps[-1].delta_ce.value == pytest.approx(wanted - together.result.ce_original, abs=1e-5)
    for other in ("own", "above"):
        with pytest.raises(UserError, match="replace the same layer"):
            measured_with(fitted, session, ("cross", other))


def test_predictions_and_effects_are_of_all_its_layers(fitted: World) -> None:
    run, ids = run_of(fitted), torch.tensor([prompt_ids(fitted.language_model, TEXT)])
    log_p = answered_by_hand(fitted, run, ids)[0].log_softmax(-1)
    for place, token in enumerate(predict(fitted.language_model, run, TEXT).tokens):
        for prediction in token.predictions:
            assert prediction.replaced == pytest.approx(log_p[place, prediction.id].exp().item(), rel=1e-3)
    effects = direct_effects(fitted.language_model, run, TEXT, 5)
    x_1I = fitted.language_model.capture(1, ids).input_TI[5:6]
    residual_O = fitted.language_model.last_residual(ids)[0, 5]
    layer = run.layer
    assert isinstance(layer, MxD)
    whole_V = fitted.language_model.logits_of(residual_O.unsqueeze(0))[0].log_softmax(-1)
    for effect in effects:
        written = effect.coefficient * (layer.encode(x_1I) @ layer.expert_matrix(effect.expert))[0]
        without = (residual_O - written[:16] - written[16:]).detach()
        change_V = whole_V - fitted.language_model.logits_of(without.unsqueeze(0))[0].log_softmax(-1)
        assert effect.promoted[0].change == pytest.approx(change_V.max().item(), abs=1e-4)


def test_it_is_routed_once_for_all_layers(fitted: World) -> None:
    run = run_of(fitted)
    ids = torch.tensor([prompt_ids(fitted.language_model, TEXT)])
    wanted = run.layer.route(fitted.language_model.capture(1, ids).input_TI)
    for token, indices_K in zip(
        route(fitted.language_model, run, TEXT).tokens, wanted.indices_TK.tolist(), strict=True
    ):
        assert {expert.expert for expert in token.experts} <= set(indices_K)


@pytest.mark.parametrize("apply", ["on-top", "replace"])
def test_an_edit_changes_all_written_layers(fitted: World, apply: Any) -> None:
    """Each token's probability is what a forward pass with the edit in both layers gives, cached generation or not."""
    run, edit = run_of(fitted), Edit(expert=3, mode="add", strength=200)
    layer = run.layer
    assert isinstance(layer, MxD)
    config = SteeringConfig(prompt=TEXT, edits=(edit,), apply=apply, sampling=Sampling(max_tokens=6, temperature=1.0))
    steps = steer(fitted.language_model, run, config, {})
    tokens = [step for step in steps if isinstance(step, NewToken) and step.arm == "steered"]
    ids = [*prompt_ids(fitted.language_model, TEXT), *(token.id for token in tokens)]
    read: list[Tensor] = []

    def first(x_BTI: Tensor, mlp: Any) -> Tensor:
        x_TI = x_BTI.flatten(0, 1)
        added_TO = edit.strength * layer.encode(x_TI) @ layer.expert_matrix(edit.expert)
        read[:] = (added_TO if apply == "on-top" else added_TO + layer(x_TI).output_TO).unsqueeze(0).chunk(2, dim=-1)
        return read[0] + mlp() if apply == "on-top" else read[0]

    def second(_x: Tensor, mlp: Any) -> Tensor:
        return read[1] + mlp() if apply == "on-top" else read[1]

    with fitted.language_model.stand_in({1: first, 2: second}), torch.no_grad():
        log_p = fitted.language_model.logits(torch.tensor([ids]))[0].log_softmax(-1)
    start = len(ids) - len(tokens)
    assert len(tokens) > 2
    for place, token in enumerate(tokens, start=start - 1):
        assert token.probability == pytest.approx(log_p[place, token.id].exp().item(), rel=1e-3)
    assert max(abs(token.delta_log_probability) for token in tokens) > 0.05


def test_past_the_end_and_without_the_method_is_refused(world: World) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"layer": 2, **CROSS}, r"A span of 2 from layer 2 on ends at layer 3, and .* choose --span 1 or less"),
        ({"layer": 7, **CROSS}, "there is no layer 7"),
        ({"span": 2}, "A mxd writes one layer; leave --span out"),
        ({**CROSS, "start": "full"}, "cannot start at the original decoder"),
    ]
    for changes, said in refused:
        with pytest.raises(UserError, match=said):
            train(world.config("refused", **changes), world.data, world.store, world.language_model)
    assert not (world.data / "runs" / "refused").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"span": 3}, "is not a layer's config"),
        ({"span": None}, "is not a layer's config"),
        ({"method": "mxd"}, "is not a layer's config"),
        ({"span": 0}, "is not a layer's config"),
        ({"span": 4}, "says that 4 layers are written and run.json that 2 are"),
        ({"output_width": 64}, "does not fit its config"),
    ],
)
def test_a_damaged_folder_is_refused(fitted: World, tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    folder = shutil.copytree(run_of(fitted).folder, tmp_path / "copy")
    config = json.loads((folder / "layer.json").read_text())
    (folder / "layer.json").write_text(json.dumps(config | changed))
    with pytest.raises(UserError, match=said):
        _ = Run.load(folder).layer


def test_another_language_model_is_refused(fitted: World, tmp_path: Path) -> None:
    folder = shutil.copytree(run_of(fitted).folder, tmp_path / "copy")
    settings = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(settings | {"layer": 2}))
    with pytest.raises(UserError, match="there is no layer 3"):
        route(fitted.language_model, Run.load(folder), TEXT)
    with pytest.raises(UserError, match="there is no layer 3"):
        evaluate(session_of(fitted), Run.load(folder), seen_text=True)


def test_what_looks_at_one_layer_refuses_it(fitted: World) -> None:
    run = run_of(fitted)
    with pytest.raises(UserError, match=r"A circuit is not to be had .* cross writes layers 1 to 2"):
        trace(fitted.language_model, run, TEXT)
    with pytest.raises(UserError, match="Influence is not to be had"):
        build_influence(run, InfluenceConfig(), fitted.language_model, fitted.store)
    with pytest.raises(UserError, match="Fine-tuning is not to be had"):
        configs_of([run], FinetuneConfig(text=fitted.text, tokens=64))
    config = SteeringConfig(prompt=TEXT, sampling=Sampling(max_tokens=2))
    with pytest.raises(UserError, match="of layer 2; steer one run a layer"):
        steer(fitted.language_model, [run, run_of(fitted, "above")], config)


def test_shares_are_told_in_each_layer_that_is_written(fitted: World) -> None:
    run, ids = run_of(fitted), torch.tensor([prompt_ids(fitted.language_model, TEXT)])
    layer = run.layer
    assert isinstance(layer, MxD)
    z_TH = layer.encode(fitted.language_model.capture(1, ids).input_TI)
    tokens = route(fitted.language_model, run, TEXT).tokens
    for token, z_H in zip(tokens, z_TH, strict=True):
        norms = [
            [expert.coefficient * part.norm().item() for part in layer.parts(z_H @ layer.expert_matrix(expert.expert))]
            for expert in token.experts
        ]
        for place in range(SPAN):
            total = sum(norm[place] for norm in norms)
            wanted = [norm[place] / total for norm in norms]
            assert [expert.shares[place] for expert in token.experts] == pytest.approx(wanted, rel=1e-4)
    plain = route(fitted.language_model, run_of(fitted, "own"), TEXT)
    assert all(expert.shares == () for token in plain.tokens for expert in token.experts)
