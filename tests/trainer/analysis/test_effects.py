"""Direct effects against their definition, what experts write, and maps of experts against an SVD."""

import gc
import weakref

import pytest
import torch
from torch import Tensor

from mxd.trainer.analysis import effects
from mxd.trainer.analysis.effects import (
    SMALL_SCALING,
    differentiable_forward,
    direct_effects,
    expert_map,
    expert_writes,
    gradients_of,
    layers_of,
    read_target,
)
from mxd.trainer.analysis.results import ExpertEffect, ExpertWrites, OutputDimension
from mxd.trainer.config.analysis import (
    ContinuationTarget,
    DifferenceTarget,
    ExpertTarget,
    SetTarget,
    Target,
    TokenTarget,
)
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import World, run_of, small_world


def test_a_pass_is_released(world: World) -> None:
    layers = layers_of(world.language_model, [run_of(world, "early", 0)])
    reading = read_target(world.language_model, prompt_ids(world.language_model, "the old fox"), TokenTarget(token=3))
    forward = differentiable_forward(reading, layers)
    gradients_of(reading.value(forward), [forward.outputs_BTO[0]])
    alive = weakref.ref(forward.outputs_BTO[0])
    gc.disable()
    try:
        del forward
        assert alive() is None  # without a cycle that only the garbage collector, or nothing, would free
    finally:
        gc.enable()


def test_rejected_targets(world: World) -> None:
    language_model, run = world.language_model, run_of(world, "early", 0)
    ids = prompt_ids(language_model, "the old fox")
    wrong: list[Target] = [
        TokenTarget(token=257),
        DifferenceTarget(token=1, other=300),
        SetTarget(tokens=(1, 999)),
        ExpertTarget(run="other", expert=1),
        ExpertTarget(run="early", expert=40),
    ]
    for target in wrong:
        with pytest.raises(UserError, match="Unknown"):
            read_target(language_model, ids, target, [run])
    with pytest.raises(TooLongError, match="too long: 212 tokens"):
        read_target(language_model, ids, ContinuationTarget(text=200 * "a"), [run])


TEXT = "the old fox"


def changes_of(language_model: LanguageModel, run: Run, expert: int) -> tuple[Tensor, Tensor]:
    """Activation of an expert at each token, [T], and what its contribution adds to the log-probabilities, [T, V]."""
    layer, ids = run.layer, torch.tensor([prompt_ids(language_model, TEXT)])
    assert isinstance(layer, MxD)
    x_TI, residual_TW = language_model.capture(1, ids).input_TI, language_model.residual(ids)[0]
    routing = layer.route(x_TI)
    activation_T = (routing.activations_TK * (routing.indices_TK == expert)).sum(dim=1)
    own_TO = activation_T[:, None] * (layer.encode(x_TI) @ layer.expert_matrix(expert))
    norm, head = (language_model.module.get_submodule(name) for name in ("model.norm", "lm_head"))
    change_TV = head(norm(residual_TW)).log_softmax(-1) - head(norm(residual_TW - own_TO)).log_softmax(-1)
    return activation_T, change_TV


@pytest.mark.parametrize("position", [0, 5, 11])
def test_effects_equal_their_definition(world: World, position: int) -> None:
    run, language_model = run_of(world), world.language_model
    effects = direct_effects(language_model, run, TEXT, position)
    assert [effect.activation for effect in effects] == sorted((e.activation for e in effects), reverse=True)
    for effect in effects:
        activation_T, change_TV = changes_of(language_model, run, effect.expert)
        assert effect.activation == pytest.approx(activation_T[position].item(), rel=1e-5)
        check_changes(effect, change_TV[position])


def check_changes(effect: ExpertEffect | ExpertWrites, change_V: Tensor) -> None:
    for token in (*effect.promoted, *effect.suppressed):
        assert token.change == pytest.approx(change_V[token.id].item(), abs=1e-4)
    assert effect.promoted[0].change == pytest.approx(change_V.max().item(), abs=1e-4)
    assert effect.suppressed[0].change == pytest.approx(change_V.min().item(), abs=1e-4)


def test_what_an_expert_writes_is_the_mean_of_its_effects(world: World) -> None:
    run, language_model = run_of(world), world.language_model
    ids = prompt_ids(language_model, TEXT)
    expert = direct_effects(language_model, run, TEXT, 5)[0].expert
    activation_T, change_TV = changes_of(language_model, run, expert)
    positions = activation_T.nonzero().flatten().tolist()
    examples = [(ids, position) for position in positions]
    inactive = [(ids, 0)] if 0 not in positions else []
    writes, nothing = expert_writes(language_model, run, [(expert, [*examples, *inactive]), (expert + 1, inactive)])
    assert nothing == ExpertWrites(expert + 1, 0, (), ())
    assert writes.examples == len(positions)
    check_changes(writes, change_TV[positions].mean(dim=0))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_token_without_active_experts_has_no_effects(world: World, family: str) -> None:
    run = run_of(world)
    run.layer.gate.bias.data.fill_(-1e3)
    assert direct_effects(tiny_language_model(family), run, TEXT, 3) == ()


EXPERT = 3


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = small_world(tmp_path_factory.mktemp("maps"))
    for method in ("mxd", "low-rank-mxd", "hidden-mxd", "transcoder"):
        made.train(method, method=method)
    return made


def mxd(maps: World) -> tuple[Run, MxD]:
    run = Run.load("mxd", maps.data)
    assert isinstance(run.layer, MxD)
    return run, run.layer


def test_directions_equal_those_of_a_full_svd(maps: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run, layer = mxd(maps)
    with torch.no_grad():
        values, vectors = torch.linalg.svd(layer.expert_matrix(EXPERT))[1:]
        logits = maps.language_model.unembed(torch.stack([vectors[0], -vectors[0]]))
    for max_width in (effects.MAX_EXACT_WIDTH, 1):  # exact, randomised
        monkeypatch.setattr(effects, "MAX_EXACT_WIDTH", max_width)
        decomposed = expert_map(maps.language_model, run, EXPERT)
        shares = values.square() / values.square().sum()
        assert [one.share for one in decomposed.directions] == pytest.approx(shares[:3].tolist(), rel=1e-3)
        assert decomposed.stable_rank == pytest.approx(1 / float(shares[0]), rel=1e-3)
        first = decomposed.directions[0]
        ends = {tuple(token.id for token in end) for end in (first.positive_tokens, first.negative_tokens)}
        assert ends == {tuple(row.topk(6).indices.tolist()) for row in logits}, "whichever sign comes first"


def test_largest_and_smallest_scalings(maps: World) -> None:
    run, layer = mxd(maps)
    with torch.no_grad():
        layer.scaling_NO[EXPERT] = layer.scaling_NO.square().mean(dim=0).sqrt()
        layer.scaling_NO[EXPERT, 5] *= -40
        layer.scaling_NO[EXPERT, 2] = 0
    decomposed = expert_map(maps.language_model, run, EXPERT)
    assert decomposed.largest_scalings[0].dimension == 5
    assert decomposed.largest_scalings[0].scaling < 0 < SMALL_SCALING < 1 < decomposed.largest_scalings[0].relative
    assert decomposed.smallest_scalings[0] == OutputDimension(2, 0.0, 0.0)
    assert decomposed.small_scaling_share == pytest.approx(1 / layer.config.output_width)


def test_a_zero_expert_has_no_direction(maps: World) -> None:
    run, layer = mxd(maps)
    with torch.no_grad():
        layer.scaling_NO[EXPERT] = 0
    decomposed = expert_map(maps.language_model, run, EXPERT)
    assert (decomposed.stable_rank, decomposed.directions, decomposed.small_scaling_share) == (0, (), 1)


def test_other_methods(maps: World) -> None:
    low = expert_map(maps.language_model, Run.load("low-rank-mxd", maps.data), EXPERT)
    assert len(low.directions) == 3
    assert (low.largest_scalings, low.smallest_scalings, low.small_scaling_share) == ((), (), None)
    hidden = expert_map(maps.language_model, Run.load("hidden-mxd", maps.data), EXPERT)
    assert hidden.stable_rank >= 1
    assert hidden.small_scaling_share is None
    with pytest.raises(UserError, match="transcoder are vectors"):
        expert_map(maps.language_model, Run.load("transcoder", maps.data), EXPERT)
