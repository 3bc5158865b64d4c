"""Evaluations, Jacobians and strength sweeps against whole passes, perfect layers, baselines; stored results."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session
from torch import Tensor
from torch.autograd import forward_ad

from mxd.trainer.analysis.ablation import build_ablations
from mxd.trainer.config.analysis import AblationConfig, EvaluateConfig, SteeringEvaluationConfig
from mxd.trainer.config.layer import Method, method_traits, methods
from mxd.trainer.config.steering import Sampling
from mxd.trainer.data.sequences import fingerprint
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.evaluation import evaluate as evaluate_module
from mxd.trainer.evaluation import metrics
from mxd.trainer.evaluation.evaluate import (
    Evaluator,
    check_held_out,
    evaluate,
    evaluate_jointly,
    evaluate_layer_by_layer,
    is_training_text,
    layer_by_layer_subject,
    load_evaluation,
    write_evaluation,
)
from mxd.trainer.evaluation.jacobians import DIRECTIONS, JacobianAgreement, load_forward_derivatives, measure_jacobians
from mxd.trainer.evaluation.metrics import ConstantMixing, EvaluatedText, constant_mixing_fit
from mxd.trainer.evaluation.results import Evaluation, JointEvaluation, LayerByLayer, _target_warnings
from mxd.trainer.evaluation.seeds import group_by_seeds
from mxd.trainer.evaluation.steering import (
    KINDS,
    SteeringVectors,
    evaluate_steering,
    generate_texts,
    median_results,
    score_texts,
    self_similarity,
)
from mxd.trainer.inference.generation import apply_repetition_penalty
from mxd.trainer.language_model import residuals
from mxd.trainer.language_model.mlp_hooks import EditedMlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.residuals import Residuals
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.mxd import SparseLayer, normalized_mse
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord, SteeringStrengthRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import weights_digest
from mxd.trainer.utils.bootstrap import Bootstrap
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.runs import World, layer_config, random_layer, run_of, stop_after, tiny_language_model, trap


@pytest.fixture(scope="module")
def trained(shared: World) -> World:
    """Runs of layer 1 by three methods, two seeds of the first, and one of layer 2. Tests only add evaluations."""
    changed: dict[str, dict[str, Any]] = {
        "mxd": {},
        "mxd-1": {"seed": 1, "data_seed": 0},
        "skip-transcoder": {"method": "skip-transcoder"},
        "autoencoder": {"method": "autoencoder"},
        "above": {"layer": 2},
    }
    for name, changes in changed.items():
        shared.train(name, **changes)
    return shared


def make_config(world: World, **changes: Any) -> EvaluateConfig:
    return EvaluateConfig(**({"text": world.text, "tokens": 320, "resamples": 200, "prompts": 4} | changes))


def open_evaluator(world: World, **changes: object) -> Evaluator:
    return Evaluator.open(make_config(world, **changes), world.language_model, NO_CALLBACKS)


def evaluate_run(world: World, name: str, layer: SparseLayer | None = None) -> Evaluation:
    run = Run.load(name, world.data)
    if layer is not None:
        run.__dict__["layer"] = layer
    result = evaluate(open_evaluator(world), run, seen_text=True).result
    assert isinstance(result, Evaluation)
    return result


def loss_of(evaluator: Evaluator) -> float:
    """Next-token loss of the language model as it is now."""
    log_p = evaluator.language_model.logits(evaluator.ids_SL)[:, :-1].log_softmax(-1)
    return float(-log_p.gather(2, evaluator.ids_SL[:, 1:, None]).mean())


@pytest.mark.parametrize("name", ["mxd", "skip-transcoder", "autoencoder"])
def test_losses_equal_those_of_whole_forward_passes(trained: World, name: str) -> None:
    evaluator, run = open_evaluator(trained), Run.load(name, trained.data)
    result = evaluate_run(trained, name)

    assert result.ce_original == pytest.approx(loss_of(evaluator), rel=1e-5)
    with trained.language_model.replace({1: run.layer}):
        assert result.ce_replaced == pytest.approx(loss_of(evaluator), rel=1e-5)
    with trained.language_model.replace_mlps({1: lambda x, _mlp: torch.zeros_like(x)}):
        assert result.ce_zeroed == pytest.approx(loss_of(evaluator), rel=1e-5)
    assert result.loss_increase.value == pytest.approx(result.ce_replaced - result.ce_original, abs=1e-6)
    assert result.loss_increase.low <= result.loss_increase.value <= result.loss_increase.high
    recovered = 1 - result.loss_increase.value / (result.ce_zeroed - result.ce_original)
    assert result.loss_recovered_zero.value == pytest.approx(recovered, rel=1e-4)
    assert result.kl > 0
    assert 0 <= result.agreement <= 1
    assert (result.method, result.parameters) == (name, run.layer.num_parameters)
    assert (result.decoder_share is None) == ("decoder_share" not in result.intervals) == (name == "autoencoder")
    assert set(result.continuations) == {"1", "2", "4", "8", "16", "32"}


def check_same_losses(result: Evaluation, expected: Evaluation) -> None:
    for name in ("ce_original", "ce_zeroed", "ce_mean_ablated", "ce_replaced", "ce_frozen", "kl"):
        assert getattr(result, name) == pytest.approx(getattr(expected, name), rel=1e-4, abs=1e-6)


def test_a_second_run_of_a_layer_reuses_residuals_and_baselines(
    trained: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = evaluate_run(trained, "skip-transcoder")
    evaluator = open_evaluator(trained)
    evaluate(evaluator, Run.load("mxd", trained.data), seen_text=True)
    monkeypatch.setattr(residuals, "residual_at", lambda *_: pytest.fail("computed again"))
    shared = evaluate(evaluator, Run.load("skip-transcoder", trained.data), seen_text=True).result
    assert isinstance(shared, Evaluation)
    check_same_losses(shared, alone)
    assert shared.agreement == alone.agreement


def test_sequences_in_one_forward_pass_do_not_change_the_losses(
    trained: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = evaluate_run(trained, "mxd")
    monkeypatch.setattr(evaluate_module, "_sequences_per_pass", lambda *_: 3)
    check_same_losses(evaluate_run(trained, "mxd"), one_by_one)


def test_a_collapsed_layer_raises_alarms(trained: World) -> None:
    """A perfect layer without routing: the original's weights, and one always-on expert with a scaling of ones."""
    result = evaluate_run(trained, "mxd", trap(trained.language_model, 1))
    assert result.loss_increase.value == pytest.approx(0, abs=1e-5)
    assert result.normalized_mse < 1e-9
    assert result.agreement == 1
    assert set(result.continuations.values()) == {1.0}
    shared, health = result.shared_expert, result.health
    shares = (result.routing_share, result.strict_routing_share, health.mixing_variation)
    assert shares == pytest.approx((0, 0, 0), abs=1e-3)
    assert shared.loss_increase_only == pytest.approx(0, abs=1e-5)
    assert (shared.experts, shared.always_on) == ((0,), 1)
    assert shared.coefficient_share == pytest.approx(1)
    assert health.load.effective_experts == pytest.approx(1)
    alarms = [warning.text for warning in result.warnings if warning.level == "alarm"]
    assert any("routing does nothing" in text for text in alarms)
    assert any("Expert 0 is active on nearly every token" in text for text in alarms)


def test_a_routing_layer_raises_no_alarm(trained: World) -> None:
    result = evaluate_run(trained, "mxd")
    shared = result.shared_expert
    assert (shared.always_on, shared.loss_increase_without, shared.loss_increase_only) == (0, None, None)
    assert result.health.mixing_variation > 0.1
    assert not any("active on nearly every token" in warning.text for warning in result.warnings)
    assert result.health.expert_ranks is not None
    assert result.health.expert_ranks.normalized_rank == pytest.approx(1)


def test_the_decoder_share_of_fixed_directions_is_their_own_loss(trained: World) -> None:
    run = Run.load("mxd", trained.data)
    layer = run.layer
    with torch.no_grad():  # the dense output is the same for every token
        layer.get_parameter("encoder.weight").zero_()
        layer.get_parameter("encoder.bias").fill_(1.0)
        if layer.config.encoder == "glu":
            layer.get_parameter("encoder_gate.weight").zero_()
            layer.get_parameter("encoder_gate.bias").fill_(1.0)
    result = evaluate_run(trained, "mxd", layer)
    assert result.decoder_share is not None
    own = result.loss_increase.value / (result.ce_mean_ablated - result.ce_original)
    assert result.decoder_share == pytest.approx(own, rel=1e-3)
    whole = evaluate_run(trained, "mxd")
    assert whole.decoder_share is not None
    assert whole.intervals["decoder_share"].value == whole.decoder_share
    own = whole.loss_increase.value / (whole.ce_mean_ablated - whole.ce_original)
    assert whole.decoder_share != pytest.approx(own, rel=1e-3)


def test_near_duplicates_and_low_ranks_are_found(trained: World) -> None:
    run = Run.load("mxd", trained.data)
    before = evaluate_run(trained, "mxd", run.layer).health.near_duplicates.share
    with torch.no_grad():
        run.layer.get_parameter("scaling_NO")[1] = run.layer.get_parameter("scaling_NO")[0]
        run.layer.gate.weight[1] = run.layer.gate.weight[0]
        run.layer.get_parameter("scaling_NO")[:, 0] = 0.0
    result = evaluate_run(trained, "mxd", run.layer)
    assert any("94% of the full rank" in warning.text for warning in result.warnings)
    near_duplicates = result.health.near_duplicates
    assert near_duplicates.share > before
    assert near_duplicates.gate_max == pytest.approx(1)


def test_joint_evaluation(trained: World) -> None:
    evaluator = open_evaluator(trained)
    runs = [Run.load(name, trained.data) for name in ("mxd", "above")]
    measured = evaluate_jointly(evaluator, runs, [0.1, 0.2])
    assert isinstance(measured.result, JointEvaluation)
    with trained.language_model.replace({run.config.layer: run.layer for run in runs}):
        assert measured.result.ce_replaced == pytest.approx(loss_of(evaluator), rel=1e-5)
    assert measured.result.summed_loss_increase == pytest.approx(0.3)
    for evaluate_several in (evaluate_jointly, evaluate_layer_by_layer):
        with pytest.raises(UserError, match="both replace layer"):
            evaluate_several(evaluator, [runs[0], Run.load("mxd-1", trained.data)], [0.1, 0.1])


def test_layer_by_layer_the_first_step_is_a_single_evaluation_and_the_last_a_joint_one(trained: World) -> None:
    evaluator = open_evaluator(trained, prompts=0)
    runs = [run_of(trained, name, layer) for name, layer in (("last", 2), ("first", 0), ("middle", 1))]
    measured = evaluate_layer_by_layer(evaluator, runs, [0.4, 0.1, 0.2])
    alone = evaluate(evaluator, runs[1], seen_text=True).result
    joint = evaluate_jointly(evaluator, runs, [0.4, 0.1, 0.2])
    result = measured.result
    assert isinstance(result, LayerByLayer)
    assert isinstance(alone, Evaluation) and isinstance(joint.result, JointEvaluation)
    assert (result.runs, result.fine_tuned) == (("first", "middle", "last"), False)
    assert result.run == layer_by_layer_subject(runs) == "layer by layer: first + middle + last"
    assert [step.summed_loss_increase for step in result.steps] == pytest.approx([0.1, 0.3, 0.7])
    for step, other in ((result.steps[0], alone), (result.steps[-1], joint.result)):
        assert step.loss_increase.value == pytest.approx(other.loss_increase.value, rel=1e-4)
        assert (step.kl, step.agreement) == pytest.approx((other.kl, other.agreement), rel=1e-4)
    assert measured.loss_increase_S == pytest.approx(joint.loss_increase_S, abs=1e-5)


def test_results_are_stored_and_reused(trained: World) -> None:
    config, digest = make_config(trained), fingerprint(trained.text)
    for name in ("mxd", "mxd-1"):
        run = Run.load(name, trained.data)
        weights = weights_digest([run])
        assert load_evaluation(trained.database, name, digest, config, weights) is None
        measured = evaluate(open_evaluator(trained), run, seen_text=True)
        for _ in range(2):  # the second replaces the first
            written = write_evaluation(trained.database, measured, name, config, digest, weights)
        assert load_evaluation(trained.database, name, digest, config, weights) == written
        assert load_evaluation(trained.database, name, digest, config, "other weights") is None
        assert load_evaluation(trained.database, name, digest, make_config(trained, tokens=160), weights) is None
    with Session(trained.database) as session:
        records = session.execute(select(EvaluationRecord, RunRecord.config).join(RunRecord)).all()
        assert len(records) == 2
        (group,) = group_by_seeds([(record, settings) for record, settings in records])
        assert set(group.names) == {"mxd", "mxd-1"}
        interval, error = group.loss_increase, group.measure("normalized_mse")
        errors = [record.result["normalized_mse"] for record, _ in records]
        assert error.value == pytest.approx(np.mean(errors))
        assert error.low < min(errors) <= max(errors) < error.high
        singles = [np.frombuffer(record.sequences, "<f4").mean() for record, _ in records]
    assert interval.value == pytest.approx(np.mean(singles), rel=1e-5)
    assert interval.low <= interval.value <= interval.high


def test_cancelling_and_training_text_are_errors(trained: World, tmp_path: Path) -> None:
    evaluator = Evaluator.open(make_config(trained), trained.language_model, stop_after(1))
    with pytest.raises(CancelledError):
        evaluate(evaluator, Run.load("mxd", trained.data), seen_text=True)
    with pytest.raises(UserError, match="held-out"):
        check_held_out("mxd", trained.text, trained.text)
    other = trained.text.model_copy(update={"dataset": str(tmp_path / "other.jsonl")})
    (tmp_path / "other.jsonl").write_text('{"text": "something else"}\n')
    check_held_out("mxd", other, trained.text)
    assert is_training_text(other, trained.text.model_copy(update={"dataset": str(tmp_path)}))
    gone = trained.text.model_copy(update={"dataset": str(tmp_path / "gone.jsonl")})
    assert not is_training_text(other, gone)


def test_a_run_is_evaluated_with_a_smaller_k(trained: World) -> None:
    run = Run.load("mxd", trained.data)
    measured = evaluate(open_evaluator(trained, k=2), run, seen_text=True)
    result = measured.result
    assert isinstance(result, Evaluation)
    assert (measured.subject, result.run, result.k, result.trained_k) == ("mxd at K 2", "mxd", 2, 4)
    assert result.l0 <= 2
    expected = evaluate_run(trained, "mxd", run.layer.at_k(2))
    assert result.loss_increase == expected.loss_increase
    assert result.continuations == expected.continuations
    assert result.loss_increase != evaluate_run(trained, "mxd").loss_increase
    with pytest.raises(UserError, match="mxd: k=5 exceeds the layer's K=4"):
        evaluate(open_evaluator(trained, k=5), run, seen_text=True)


def test_results_without_later_settings_are_reused_but_not_those_without_the_newest_measure(trained: World) -> None:
    config, run, digest = make_config(trained, seed=7), Run.load("mxd", trained.data), "5" * 32
    weights = weights_digest([run])
    measured = evaluate(open_evaluator(trained), run, seen_text=True)
    write_evaluation(trained.database, measured, "mxd", config, digest, weights)

    def is_reused(without: str, **changes: Any) -> bool:
        with Session(trained.database) as session:
            record = session.scalars(select(EvaluationRecord).where(EvaluationRecord.fingerprint == digest)).one()
            record.settings = {name: value for name, value in record.settings.items() if name != without}
            record.result = {name: value for name, value in record.result.items() if name != without}
            session.commit()
        settings = make_config(trained, seed=7, **changes)
        return load_evaluation(trained.database, "mxd", digest, settings, weights) is not None

    assert [is_reused("k"), is_reused("k", k=2), is_reused("decoder_share")] == [True, False, False]


def test_a_missed_mean_number_of_experts_is_a_warning() -> None:
    (warning,) = _target_warnings("batch-topk-mxd", 41.2, 32, 1920)
    assert warning == ("warning", "41.2 experts are active per token instead of K = 32, over 1,920 tokens.")
    assert not list(_target_warnings("batch-topk-mxd", 33.0, 32, 1920))
    assert not list(_target_warnings("mxd", 20.0, 32, 1920))  # K is an upper bound


CONFIG = SteeringEvaluationConfig(experts=3, strengths=(0.02, 0.5), prompts=("the old fox",), samples=2, max_tokens=6)


@pytest.fixture(name="run")
def indexed_run(world: World, run: Run) -> Run:
    """An indexed run whose layer is random, so that every expert matters."""
    run.__dict__["layer"] = random_layer(widths=(16, 24, 16), num_experts=40, k=4)
    world.index(run)
    return run


def steering_vectors(activation: float, length: float = 0.0) -> SteeringVectors:
    direction = torch.nn.functional.normalize(torch.ones(1, 16), dim=1) * length
    return SteeringVectors(torch.tensor([3]), torch.tensor([activation]), direction)


def test_effects_grow_with_strength(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="mxd ablate small"):
        evaluate_steering(run, CONFIG, world.language_model, world.database)
    build_ablations(run, AblationConfig(), world.language_model, world.database)
    results = evaluate_steering(run, CONFIG, world.language_model, world.database)
    assert len(world.rows(SteeringStrengthRecord)) == len(results) == 3 * (1 + 3 * 2)
    medians = median_results(results)
    assert medians["none"][0.0]["kl"] == pytest.approx(0, abs=1e-6)
    assert all(0 < medians[kind][0.02]["kl"] < medians[kind][0.5]["kl"] for kind in KINDS)
    assert results == evaluate_steering(run, CONFIG, world.language_model, world.database)


def test_a_direction_has_the_norm_of_the_contribution(world: World, run: Run) -> None:
    x_1TI = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros(1, 5, 16)
    own, redirected = (
        EditedMlp(run.layer, steering_vectors(2.0, length).added)(x_1TI, lambda: zero) for length in (0.0, 1.0)
    )
    torch.testing.assert_close(own.norm(dim=2), redirected.norm(dim=2))
    matrix_HO = run.layer.expert_matrix(3)  # type: ignore[operator]
    torch.testing.assert_close(own[0], 2.0 * run.layer.encode(x_1TI[0]) @ matrix_HO)  # type: ignore[operator]


def test_without_steering_texts_and_losses_are_the_original_models(world: World, run: Run) -> None:
    prompt = prompt_ids(world.language_model, "the old fox")
    mlp = EditedMlp(run.layer, steering_vectors(0.0).added)
    ids_1T = generate_texts(world.language_model, 1, mlp, prompt, [0], Sampling(max_tokens=5, temperature=0))
    greedy = torch.tensor([prompt])
    for _ in range(5):
        logits_1V = world.language_model.logits(greedy)[:, -1].double()
        penalised_1V = apply_repetition_penalty(logits_1V, [set(greedy[0].tolist())], [Sampling()])
        greedy = torch.cat([greedy, penalised_1V.argmax(dim=1, keepdim=True)], dim=1)
    assert torch.equal(ids_1T, greedy)
    assert score_texts(world.language_model, 1, mlp, ids_1T, len(prompt))[0].item() == pytest.approx(0, abs=1e-6)


def test_self_similarity_is_one_for_the_same_words_and_zero_for_others() -> None:
    assert self_similarity(torch.tensor([[1, 2, 3], [3, 2, 1]])) == pytest.approx(1)
    assert self_similarity(torch.tensor([[1, 2, 3], [4, 5, 6]])) == pytest.approx(0)


SEQUENCES, LENGTH = 6, 20


def measure(language_model: LanguageModel, layer: SparseLayer, tokens: int = 30) -> JacobianAgreement | None:
    ids_SL = torch.randint(1, 50, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(0))
    bootstrap = Bootstrap(SEQUENCES, 200, 0)
    text = EvaluatedText(language_model, ids_SL, NO_CALLBACKS, Residuals(language_model))
    return measure_jacobians(text, 1, layer, tokens, bootstrap, 0)


def forward_product(layer: SparseLayer, x_TI: Tensor, direction_TI: Tensor) -> Tensor:
    load_forward_derivatives()
    with torch.no_grad(), forward_ad.dual_level():
        dual_TO = layer(forward_ad.make_dual(x_TI, direction_TI)).output_TO
        tangent: Tensor | None = forward_ad.unpack_dual(dual_TO).tangent
    assert tangent is not None
    return tangent


@pytest.mark.parametrize("method", methods("core", "imported"))
def test_forward_derivatives_equal_backward_ones(method: Method) -> None:
    layer = random_layer(method, widths=(16, 24, 16)).eval()
    x_TI, direction_TI, back_TO = (torch.randn(12, 16, generator=torch.Generator().manual_seed(n)) for n in range(3))
    x_TI.requires_grad_()
    (gradient_TI,) = torch.autograd.grad(layer(x_TI).output_TO, x_TI, back_TO)
    product_TO = forward_product(layer, x_TI.detach(), direction_TI)
    assert product_TO.abs().max() > 0.1
    torch.testing.assert_close((back_TO * product_TO).sum(1), (gradient_TI * direction_TI).sum(1), rtol=1e-3, atol=1e-3)


def test_a_perfect_layer_agrees_and_its_control_does_not() -> None:
    language_model = tiny_language_model("llama")
    result = measure(language_model, trap(language_model, 1))
    assert result is not None
    assert (result.tokens, result.directions) == (30, DIRECTIONS)
    for kind in ("random", "data"):
        agreement, control = getattr(result, kind), getattr(result, f"{kind}_control")
        assert agreement.low == pytest.approx(1, abs=1e-5)
        assert control.low < control.value < control.high < 0.7


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_a_random_layer_does_not_agree_in_any_architecture(family: str) -> None:
    language_model = tiny_language_model(family)
    layer = random_layer(num_experts=12, k=1, **vars(language_model.architecture.mlp_shape(1))).eval()
    result = measure(language_model, layer)
    assert result is not None
    assert abs(result.random.value) < 0.3
    assert measure(language_model, layer, tokens=0) is None


OF_OUTPUTS: tuple[Method, ...] = ("mxd", "transcoder", "skip-transcoder")
OF_A_HIDDEN_VECTOR: tuple[Method, ...] = ("hidden-mxd", "low-rank-mxd", "molt")


def layer_of(method: Method, seed: int = 0) -> SparseLayer:
    torch.manual_seed(seed)
    layer = build_layer(layer_config(method, (6, 9, 6), num_experts=20, k=3, mixing=method_traits(method).mixing))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape))
    return layer


def fitted(layer: SparseLayer, dense_TM: Tensor, target_TO: Tensor) -> ConstantMixing:
    fit = constant_mixing_fit(layer)
    assert fit is not None
    for dense, target in zip(dense_TM.split(50), target_TO.split(50), strict=True):
        fit.add(dense, target)
    return fit.best()


@pytest.mark.parametrize("method", OF_OUTPUTS + OF_A_HIDDEN_VECTOR)
@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_no_other_constant_has_a_lower_error(method: Method, seed: int) -> None:
    layer, x_TI, target_TO = layer_of(method, seed), torch.randn(200, 6), torch.randn(200, 6)
    dense_TM = layer.dense_output(x_TI)
    best = fitted(layer, dense_TM, target_TO)
    error = normalized_mse(best.output(layer, dense_TM), target_TO)
    for _ in range(20):
        change_M, change_O = 0.1 * torch.randn_like(best.mixing_M), 0.1 * torch.randn(6)
        other = ConstantMixing(best.mixing_M + change_M, best.bias_O + change_O)
        assert error <= normalized_mse(other.output(layer, dense_TM), target_TO)


@pytest.mark.parametrize("method", OF_A_HIDDEN_VECTOR)
@torch.no_grad()
def test_it_finds_the_constant_mixing_of_a_hidden_vector(method: Method) -> None:
    layer = layer_of(method)
    dense_TM = layer.dense_output(torch.randn(400, 6))
    target_TO = layer.decode_mixed(dense_TM, torch.randn(dense_TM.shape[1]).expand_as(dense_TM)) + 2.0
    output_TO = fitted(layer, dense_TM, target_TO).output(layer, dense_TM)
    assert normalized_mse(output_TO, target_TO) < 1e-6
    assert normalized_mse(layer.decode_mixed(dense_TM, torch.zeros_like(dense_TM)), target_TO) > 0.1


def test_a_mixing_that_is_not_element_wise_or_too_wide_is_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert constant_mixing_fit(layer_of("tensor-ring-mxd")) is None
    monkeypatch.setattr(metrics, "MAX_JOINT_WIDTH", 8)
    assert constant_mixing_fit(layer_of("hidden-mxd")) is None
    assert constant_mixing_fit(layer_of("mxd")) is not None


@torch.no_grad()
def test_a_transcoder_has_no_dense_path() -> None:
    """Its best constant output is the mean target, weighted as in the normalised MSE."""
    layer, target_TO = layer_of("transcoder"), torch.randn(300, 6)
    dense_TM = layer.dense_output(torch.randn(300, 6))
    output_TO = fitted(layer, dense_TM, target_TO).output(layer, dense_TM)
    weights_T1 = 1 / target_TO.square().sum(1, keepdim=True)
    mean_O = (weights_T1 * target_TO).sum(0) / weights_T1.sum()
    torch.testing.assert_close(output_TO, mean_O.expand_as(target_TO), atol=1e-5, rtol=1e-5)
