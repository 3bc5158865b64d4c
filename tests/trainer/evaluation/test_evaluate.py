"""Evaluating: equalities that must hold, the trap, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session as Reading

from tests.layers import flat_gate
from tests.runs import World, small_world
from tests.trainer.evaluation.worlds import trap
from trainer.config import EvaluateConfig, FittedMethod, Method
from trainer.errors import UserError
from trainer.evaluation.evaluate import Session, Stopped, evaluate, evaluate_together
from trainer.evaluation.result import Evaluation, Together
from trainer.evaluation.seeds import by_seeds
from trainer.evaluation.seen import is_seen, refuse_seen
from trainer.evaluation.write import stored, weights_digest, write_evaluation
from trainer.layers.sparse import SparseLayer
from trainer.progress import never, silent
from trainer.run import Run
from trainer.store import EvaluationRecord, RunRecord
from trainer.text import fingerprint
from trainer.train import train


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Runs of layer 1 by three methods, two seeds of the first, and one of layer 2. Tests add evaluations alone."""
    world = small_world(tmp_path_factory.mktemp("evaluated"))
    changed: dict[str, dict[str, Any]] = {
        "mxd": {},
        "mxd-1": {"seed": 1, "text_seed": 0},
        "skip-transcoder": {"method": "skip-transcoder"},
        "autoencoder": {"method": "autoencoder"},
        "above": {"layer": 2},
    }
    for name, changes in changed.items():
        train(world.config(name, **changes), world.data, world.store, world.language_model)
    yield world
    world.store.dispose()


def config_of(world: World, **changes: Any) -> EvaluateConfig:
    return EvaluateConfig(**({"text": world.text, "tokens": 320, "resamples": 200, "prompts": 4} | changes))


def session_of(world: World, **changes: object) -> Session:
    return Session.open(config_of(world, **changes), world.language_model, silent, never)


def result_of(world: World, name: str, layer: SparseLayer | None = None) -> Evaluation:
    run = Run.load(name, world.data)
    if layer is not None:
        run.__dict__["layer"] = layer
    result = evaluate(session_of(world), run, seen_text=True).result
    assert isinstance(result, Evaluation)
    return result


@pytest.mark.parametrize("name", ["mxd", "skip-transcoder", "autoencoder"])
def test_the_loss_is_that_of_whole_forward_passes(fitted: World, name: str) -> None:
    session, run = session_of(fitted), Run.load(name, fitted.data)
    result = result_of(fitted, name)

    def loss() -> float:
        log_p = fitted.language_model.logits(session.ids_SL)[:, :-1].log_softmax(-1)
        return float(-log_p.gather(2, session.ids_SL[:, 1:, None]).mean())

    assert result.ce_original == pytest.approx(loss(), rel=1e-5)
    with fitted.language_model.replace({1: run.layer}):
        assert result.ce_replaced == pytest.approx(loss(), rel=1e-5)
    with fitted.language_model.stand_in({1: lambda x, _mlp: torch.zeros_like(x)}):
        assert result.ce_zeroed == pytest.approx(loss(), rel=1e-5)
    assert result.delta_ce.value == pytest.approx(result.ce_replaced - result.ce_original, abs=1e-6)
    assert result.delta_ce.low <= result.delta_ce.value <= result.delta_ce.high
    recovered = 1 - result.delta_ce.value / (result.ce_zeroed - result.ce_original)
    assert result.loss_recovered_zero.value == pytest.approx(recovered, rel=1e-4)
    assert result.kl > 0
    assert 0 <= result.agreement <= 1
    assert (result.method, result.parameters) == (name, run.layer.num_parameters)
    assert set(result.continuations) == {"1", "2", "4", "8", "16", "32"}


def test_the_trap_is_called_out(fitted: World) -> None:
    """Perfect and empty: E and D the original's, one expert of ones that is always on."""
    result = result_of(fitted, "mxd", trap(fitted.language_model, 1))
    assert result.delta_ce.value == pytest.approx(0, abs=1e-5)
    assert result.normalised_mse < 1e-9
    assert result.agreement == 1
    assert set(result.continuations.values()) == {1.0}
    assert result.routing_share == pytest.approx(0, abs=1e-3)
    assert (result.shared_expert.experts, result.shared_expert.always_on) == ((0,), 1)
    assert result.shared_expert.share == pytest.approx(1)
    assert result.shared_expert.delta_ce_only == pytest.approx(0, abs=1e-5)
    assert result.health.mixing_variation == pytest.approx(0, abs=1e-3)
    assert result.health.load.effective_experts == pytest.approx(1)
    alarms = [verdict.text for verdict in result.verdicts if verdict.level == "alarm"]
    assert any("routing does nothing" in text for text in alarms)
    assert any("Expert 0 is on at nearly every token" in text for text in alarms)


def test_a_layer_that_routes_is_not_accused(fitted: World) -> None:
    result = result_of(fitted, "mxd")
    assert result.shared_expert.always_on == 0
    assert result.health.mixing_variation > 0.1
    assert not any("on at nearly every token" in verdict.text for verdict in result.verdicts)
    assert result.health.matrices is not None
    assert result.health.matrices.normalised_rank == pytest.approx(1)


def test_a_zero_in_a_scaling_costs_rank(fitted: World) -> None:
    run = Run.load("mxd", fitted.data)
    with torch.no_grad():
        run.layer.get_parameter("scaling_NO")[:, 0] = 0.0
    health = result_of(fitted, "mxd", run.layer).health
    assert health.matrices is not None
    assert health.matrices.normalised_rank == pytest.approx(15 / 16)
    assert health.matrices.smallest_scaling == health.matrices.smallest_singular_value == 0


def test_duplicates_are_found(fitted: World) -> None:
    run = Run.load("mxd", fitted.data)
    with torch.no_grad():
        run.layer.get_parameter("scaling_NO")[1] = run.layer.get_parameter("scaling_NO")[0]
        flat_gate(run.layer).weight[1] = flat_gate(run.layer).weight[0]
    twins = result_of(fitted, "mxd", run.layer).health.twins
    assert twins.share == pytest.approx(2 / 40)
    assert twins.gate_largest == pytest.approx(1)


def test_several_layers_at_once(fitted: World) -> None:
    session = session_of(fitted)
    runs = [Run.load(name, fitted.data) for name in ("mxd", "above")]
    measured = evaluate_together(session, runs, [0.1, 0.2])
    assert isinstance(measured.result, Together)
    with fitted.language_model.replace({run.config.layer: run.layer for run in runs}):
        log_p = fitted.language_model.logits(session.ids_SL)[:, :-1].log_softmax(-1)
    wanted = float(-log_p.gather(2, session.ids_SL[:, 1:, None]).mean())
    assert measured.result.ce_replaced == pytest.approx(wanted, rel=1e-5)
    assert measured.result.sum_of_single == pytest.approx(0.3)
    with pytest.raises(UserError, match="same layer"):
        evaluate_together(session, [runs[0], runs[0]], [0.1, 0.1])


def test_results_are_kept_and_known_again(fitted: World) -> None:
    config, digest = config_of(fitted), fingerprint(fitted.text)
    for name in ("mxd", "mxd-1"):
        run = Run.load(name, fitted.data)
        weights = weights_digest([run])
        assert stored(fitted.store, name, digest, config, weights) is None
        measured = evaluate(session_of(fitted), run, seen_text=True)
        for _ in range(2):  # the second takes the place of the first
            written = write_evaluation(fitted.store, measured, name, config, digest, weights)
        assert stored(fitted.store, name, digest, config, weights) == written
        assert stored(fitted.store, name, digest, config, "other weights") is None
        assert stored(fitted.store, name, digest, config_of(fitted, tokens=160), weights) is None
    with Reading(fitted.store) as session:
        records = session.execute(select(EvaluationRecord, RunRecord.config).join(RunRecord)).all()
        assert len(records) == 2
        (found,) = by_seeds([(record, settings) for record, settings in records])
        assert set(found.names) == {"mxd", "mxd-1"}
        interval, error = found.delta_ce, found.measure("normalised_mse")
        errors = [record.result["normalised_mse"] for record, _ in records]
        assert error.value == pytest.approx(np.mean(errors))
        assert error.low < min(errors) <= max(errors) < error.high
        singles = [np.frombuffer(record.sequences, "<f4").mean() for record, _ in records]
    assert interval.value == pytest.approx(np.mean(singles), rel=1e-5)
    assert interval.low <= interval.value <= interval.high


def test_stopping_keeps_nothing_half(fitted: World) -> None:
    session = Session.open(config_of(fitted), fitted.language_model, silent, lambda: True)
    with pytest.raises(Stopped):
        evaluate(session, Run.load("mxd", fitted.data), seen_text=True)


def test_text_that_was_fitted_on_is_refused(fitted: World, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="held-out"):
        refuse_seen("mxd", fitted.text, fitted.text)
    other = fitted.text.model_copy(update={"text": str(tmp_path / "other.jsonl")})
    (tmp_path / "other.jsonl").write_text('{"text": "something else"}\n')
    refuse_seen("mxd", other, fitted.text)
    assert is_seen(other, fitted.text.model_copy(update={"text": str(tmp_path)}))
    gone = fitted.text.model_copy(update={"text": str(tmp_path / "gone.jsonl")})
    assert not is_seen(other, gone)


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_other_architectures(tmp_path: Path, family: str) -> None:
    from dataclasses import replace

    from tests.language_models import tiny_language_model

    world = replace(small_world(tmp_path), language_model=tiny_language_model(family))
    train(world.config(), world.data, world.store, world.language_model)
    result = evaluate(session_of(world), Run.load("small", world.data), seen_text=True).result
    assert isinstance(result, Evaluation)
    assert asdict(result)["delta_ce"]["value"] == pytest.approx(result.ce_replaced - result.ce_original, abs=1e-6)
    world.store.dispose()


@pytest.mark.parametrize("method", get_args(FittedMethod))
def test_decoding_a_mixing_is_decoding_its_routing(fitted: World, method: Method) -> None:
    from trainer.fitting import layer_config_of
    from trainer.layers.registry import build_layer

    layer = build_layer(layer_config_of(fitted.config(method=method), fitted.language_model.anatomy))
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.5)
    x_TI = torch.randn(5, 16)
    routing, dense_TM = layer.route(x_TI), layer.dense_output(x_TI)
    torch.testing.assert_close(layer.decode_mixed(dense_TM, layer.mixing(routing)), layer.decode(dense_TM, routing))


def test_a_run_is_measured_with_fewer_experts(fitted: World) -> None:
    run = Run.load("mxd", fitted.data)
    measured = evaluate(session_of(fitted, k=2), run, seen_text=True)
    result = measured.result
    assert isinstance(result, Evaluation)
    assert (measured.subject, result.run, result.k, result.fitted_k) == ("mxd at K 2", "mxd", 2, 4)
    assert result.l0 <= 2
    narrow = Run.load("mxd", fitted.data)
    narrow.__dict__["layer"] = run.layer.at_k(2)
    wanted = evaluate(session_of(fitted), narrow, seen_text=True).result
    assert isinstance(wanted, Evaluation)
    assert result.delta_ce == wanted.delta_ce
    assert result.continuations == wanted.continuations
    assert result.delta_ce != result_of(fitted, "mxd").delta_ce
    with pytest.raises(UserError, match="mxd: A token has 4 experts at most, and 5 are asked for"):
        evaluate(session_of(fitted, k=5), run, seen_text=True)


def test_settings_that_came_later_do_not_make_a_result_old(fitted: World) -> None:
    config, run = config_of(fitted, seed=7), Run.load("mxd", fitted.data)
    session = Session.open(config, fitted.language_model, silent, never)
    weights = weights_digest([run])
    write_evaluation(fitted.store, evaluate(session, run, seen_text=True), "mxd", config, "5" * 32, weights)
    with Reading(fitted.store) as reading:
        record = reading.scalar(select(EvaluationRecord).where(EvaluationRecord.fingerprint == "5" * 32))
        assert record is not None
        record.settings = {name: value for name, value in record.settings.items() if name != "k"}
        reading.commit()
    assert stored(fitted.store, "mxd", "5" * 32, config, weights) is not None
    assert stored(fitted.store, "mxd", "5" * 32, config_of(fitted, seed=7, k=2), weights) is None
