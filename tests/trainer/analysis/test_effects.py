"""Direct effects, maps of experts and search by effect, against definitions, an SVD, differences and hooks."""

import gc
import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from mxd.trainer.analysis import edit_price as edit_price_module
from mxd.trainer.analysis import effect_search, effects
from mxd.trainer.analysis.edit_price import UNRELATED_TOKENS, EditedPasses, ability_items, edit_price
from mxd.trainer.analysis.effect_search import _Search, expert_effects, find, measure, unit_prices
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
from mxd.trainer.analysis.results import (
    Ability,
    Controls,
    EditPrice,
    ExpertEffect,
    ExpertWrites,
    OutputDimension,
    PriceOnText,
    supported_words,
)
from mxd.trainer.config.analysis import (
    ContinuationTarget,
    DifferenceTarget,
    ExpertTarget,
    FindConfig,
    SetTarget,
    Target,
    TokenTarget,
)
from mxd.trainer.config.layer import methods
from mxd.trainer.config.steering import Edit
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.inference.units import all_units
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.mxd import MxD, Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from mxd.trainer.utils.display import signed
from tests.helpers.runs import World, random_layer, run_of, sure_language_model, tiny_language_model


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
    with_TV, without_TV = (log_p_after(language_model, each) for each in (residual_TW, residual_TW - own_TO))
    return activation_T, with_TV - without_TV


def log_p_after(language_model: LanguageModel, residual_TW: Tensor) -> Tensor:
    """Log-probabilities of the next tokens, [T, V], after a residual stream."""
    norm, head = (language_model.module.get_submodule(name) for name in ("model.norm", "lm_head"))
    log_p_TV: Tensor = head(norm(residual_TW)).detach().log_softmax(-1)
    return log_p_TV


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
    writes = expert_writes(language_model, run, expert, [*examples, *inactive])
    assert writes.examples == len(positions)
    assert not writes.controls.exceeded, "nothing is compared"
    check_changes(writes, change_TV[positions].mean(dim=0))
    assert expert_writes(language_model, run, expert, inactive).promoted == ()


def test_random_experts_take_the_place_of_the_expert(world: World) -> None:
    run, language_model = run_of(world), world.language_model
    ids, layer = prompt_ids(language_model, TEXT), run.layer
    assert isinstance(layer, MxD)
    effect = direct_effects(language_model, run, TEXT, 5)[0]
    control, units = (effect.expert + 1) % 40, {effect.expert: 2.0, (effect.expert + 1) % 40: 3.0}
    controls = expert_writes(language_model, run, effect.expert, [(ids, 5)], [control], units).controls
    x_1I = language_model.capture(1, torch.tensor([ids])).input_TI[5:6]
    residual_1W = language_model.residual(torch.tensor([ids]))[0, 5:6]
    own_1W, other_1W = (layer.encode(x_1I) @ layer.expert_matrix(each) for each in (effect.expert, control))
    without_1W = residual_1W - effect.activation * own_1W
    with_1W = without_1W + effect.activation / 2 * 3 * other_1W
    change_1V = log_p_after(language_model, with_1W) - log_p_after(language_model, without_1W)
    assert (controls.rise, controls.fall) == pytest.approx((float(change_1V.max()), float(change_1V.min())), abs=1e-4)
    assert controls.exceeded == (effect.promoted[0].change > controls.rise)


def test_words_of_a_label_are_compared_with_random_experts(world: World) -> None:
    run, language_model = run_of(world), world.language_model
    ids = prompt_ids(language_model, TEXT)
    effect = direct_effects(language_model, run, TEXT, 5)[0]
    others = [each for each in range(40) if each != effect.expert][:20]
    word = next(token.text.strip() for token in effect.promoted if token.text.strip().isalpha())

    def supported(controls: Sequence[int], label: str) -> str | None:
        writes = expert_writes(language_model, run, effect.expert, [(ids, 5)], controls, label=label)
        return writes.supported_words

    weaker = sum(supported([each], word) is not None for each in others)
    sentence = f"“{word}” rises more than with {weaker} of 20 random experts"
    found = supported(others, f"Fires on xyz; promotes “{word}”.") or ""
    assert found.partition(", but")[0] == sentence * (weaker >= 19)
    assert weaker > 10 and supported([], word) is None
    changes = {"a": [1.0, *[0.5] * 20], "b": [1.0, *[0.5] * 19, 2.0], "c": [1.0, *[2.0] * 20]}
    rising = "“a” and “b” rise more than with 19 of 20 random experts"
    assert supported_words(changes, True) == rising
    assert supported_words(changes, False) == f"{rising}, but its largest rise is not above random"


@pytest.mark.parametrize(("weaker", "exceeded"), [(20, True), (19, True), (18, False), (0, False)])
def test_an_expert_exceeds_chance_if_it_is_stronger_than_19_of_20(weaker: int, exceeded: bool) -> None:
    rises = [1.0, *[0.5] * weaker, *[2.0] * (20 - weaker)]
    compared = Controls.compare(rises, [-3.0, *[-0.5] * 20], range(20), 4)
    assert (compared.weaker, compared.needed, compared.exceeded) == (weaker, 19, exceeded)
    assert compared.verdict == ("largest rise and fall above random" if exceeded else "only largest fall above random")
    assert (compared.rise, compared.fall, compared.fall_exceeded) == (0.5 if exceeded else 2.0, -0.5, True)
    assert compared.sentence == (
        f"On 4 of its strongest examples, the largest rise (+1.00) exceeds that of {'' if exceeded else 'only '}"
        f"{weaker} of 20 random experts, the largest fall (−3.00) that of 20."
    )


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_token_without_active_experts_has_no_effects(world: World, family: str) -> None:
    run = run_of(world)
    run.layer.gate.bias.data.fill_(-1e3)
    assert direct_effects(tiny_language_model(family), run, TEXT, 3) == ()


EXPERT = 3


@pytest.fixture(scope="module")
def maps(shared: World) -> World:
    for method in ("mxd", "low-rank-mxd", "hidden-mxd", "transcoder"):
        shared.train(method, method=method)
    return shared


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
    with torch.no_grad():
        layer.scaling_NO[EXPERT] = 0
    nothing = expert_map(maps.language_model, run, EXPERT)
    assert (nothing.stable_rank, nothing.directions, nothing.small_scaling_share) == (0, (), 1)


def test_other_methods(maps: World) -> None:
    low = expert_map(maps.language_model, Run.load("low-rank-mxd", maps.data), EXPERT)
    assert len(low.directions) == 3
    assert (low.largest_scalings, low.smallest_scalings, low.small_scaling_share) == ((), (), None)
    hidden = expert_map(maps.language_model, Run.load("hidden-mxd", maps.data), EXPERT)
    assert hidden.stable_rank >= 1
    assert hidden.small_scaling_share is None
    with pytest.raises(UserError, match="transcoder are vectors"):
        expert_map(maps.language_model, Run.load("transcoder", maps.data), EXPERT)


PROMPTS = ("the old fox", "a blue dog ran")
UNRELATED = ("red and blue", "very old")
WISHES = {
    "token": FindConfig(prompts=PROMPTS[:1], wanted=("s",), unrelated=UNRELATED),
    "tokens": FindConfig(prompts=PROMPTS, wanted=("s", "r", "s"), unrelated=UNRELATED),
    "continuation": FindConfig(prompts=PROMPTS, wanted=(" sang",), unrelated=UNRELATED),
    "mixed": FindConfig(prompts=PROMPTS[:1], wanted=("s", " ran", " sat"), unwanted=("e",), unrelated=UNRELATED),
    "texts": FindConfig(prompts=PROMPTS, wanted=(" the red dog",), unwanted=(" a fox",), unrelated=UNRELATED),
    "unwanted": FindConfig(prompts=PROMPTS, unwanted=("s", " ran"), unrelated=UNRELATED),
}


def runs_of(world: World) -> list[Run]:
    """Two runs of the tiny model, in which the start token has an embedding.

    In the helper's model it is zero, so that the norms' derivatives at it are a thousand times as large as elsewhere.
    """
    embedding = world.language_model.module.get_input_embeddings().weight.data
    embedding[0] = embedding[1:].flip(0)[0]
    runs = [run_of(world, "early", 0), run_of(world, "late", 2)]
    for run in runs:
        run.layer.table.data.mul_(0.1)
    return runs


def hooked(language_model: LanguageModel, runs: Sequence[Run], edits: Sequence[Edit], ids: Sequence[int]) -> Tensor:
    """Log-probabilities of the next tokens with edits, [T, V], by forward hooks on the MLP modules."""
    handles = []
    for edit in edits:
        run = next(run for run in runs if run.name == edit.run)
        layer = run.layer
        assert isinstance(layer, MxD)
        matrix_HO = edit.strength * run.units.get(edit.expert, 1.0) * layer.expert_matrix(edit.expert)

        def add(
            _mlp: nn.Module, inputs: tuple[Tensor], output: Tensor, layer: MxD = layer, matrix_HO: Tensor = matrix_HO
        ) -> Tensor:
            return output + layer.encode(inputs[0].float()) @ matrix_HO

        mlp = language_model.module.get_submodule(f"model.layers.{run.config.layer}.mlp")
        handles.append(mlp.register_forward_hook(add))
    try:
        with torch.no_grad():
            logits_TV: Tensor = language_model.module(input_ids=torch.tensor([list(ids)])).logits[0].double()
            return logits_TV.log_softmax(-1)
    finally:
        for handle in handles:
            handle.remove()


def probabilities(
    language_model: LanguageModel, runs: Sequence[Run], edits: Sequence[Edit], prompt: str, texts: Sequence[str]
) -> float:
    """Probability that one of the texts follows the prompt."""
    total, start = 0.0, prompt_ids(language_model, prompt)
    for text in set(texts):
        ids = prompt_ids(language_model, prompt + text)
        log_p_TV = hooked(language_model, runs, edits, ids)
        total += math.exp(sum(float(log_p_TV[place - 1, ids[place]]) for place in range(len(start), len(ids))))
    return total


def wish_of(language_model: LanguageModel, runs: Sequence[Run], edits: Sequence[Edit], config: FindConfig) -> float:
    terms = [
        sign * math.log(probabilities(language_model, runs, edits, prompt, texts))
        for prompt in config.prompts
        for sign, texts in ((1, config.wanted), (-1, config.unwanted))
        if texts
    ]
    return sum(terms) / len(config.prompts)


@pytest.mark.parametrize("method", methods("core", "experimental", "imported"))
def test_effects_equal_each_experts_contribution(method: str) -> None:
    layer = random_layer(method).requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    x_PI = torch.randn(6, layer.config.input_width, generator=generator)
    gradient_PO = torch.randn(6, layer.config.output_width, generator=generator)
    effect_N = expert_effects(layer, x_PI, gradient_PO)
    dense_PM = layer.dense_output(x_PI)
    for expert in range(layer.config.num_experts):
        one = Routing(torch.ones(6, 1), torch.full((6, 1), expert))
        expected = float((layer.contribution(dense_PM, one) * gradient_PO).sum())
        assert float(effect_N[expert]) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("kind", WISHES)
def test_predictions_equal_finite_differences_and_measurements_equal_hooks(world: World, kind: str) -> None:
    language_model, runs, config = world.language_model, runs_of(world), WISHES[kind]
    language_model.module.double()
    found = find(language_model, runs, config)
    before = wish_of(language_model, runs, (), config)
    assert found.wish == pytest.approx(before, abs=1e-4)
    assert {expert.edit.run for expert in found.experts} <= {"early", "late"} and len(found.experts) == config.hits
    assert [e.change for e in found.experts] == sorted((e.change for e in found.experts), reverse=True)
    share = sum(
        probabilities(language_model, runs, (), prompt, config.wanted or config.unwanted) for prompt in config.prompts
    ) / len(config.prompts)
    assert found.probability == pytest.approx(share if config.wanted else 1 - share, abs=1e-5)
    for expert in found.experts[:3]:
        up, down = (
            wish_of(language_model, runs, [expert.edit.model_copy(update={"strength": step})], config)
            for step in (1e-3, -1e-3)
        )
        assert expert.per_unit == pytest.approx((up - down) / 2e-3, rel=2e-3, abs=1e-5)
        assert expert.change == pytest.approx(wish_of(language_model, runs, [expert.edit], config) - before, abs=1e-3)


def test_predicted_change_follows_the_log_odds(world: World) -> None:
    config = WISHES["token"].model_copy(update={"max_price": 10.0})
    found = find(world.language_model, runs_of(world), config)
    for expert in found.experts:
        odds = math.log(found.probability / (1 - found.probability))
        odds += expert.per_unit * expert.edit.strength / (1 - found.probability)
        expected = -math.log1p(math.exp(-odds)) - math.log(found.probability)
        assert expert.predicted == pytest.approx(expected, rel=1e-5)


GROUP = (Edit(run="early", expert=3, mode="add", strength=0.5), Edit(run="late", expert=7, mode="add", strength=2))


def price_of(language_model: LanguageModel, runs: Sequence[Run], edits: Sequence[Edit]) -> tuple[float, float]:
    """KL divergence from the original model, and increase of the loss, per token of the unrelated texts."""
    kl, loss, tokens = 0.0, 0.0, 0
    for text in UNRELATED:
        ids = prompt_ids(language_model, text)
        original_TV, edited_TV = (hooked(language_model, runs, each, ids[:-1]) for each in ((), edits))
        kl += float((original_TV.exp() * (original_TV - edited_TV)).sum())
        loss += sum(float(original_TV[at, token] - edited_TV[at, token]) for at, token in enumerate(ids[1:]))
        tokens += len(ids) - 1
    return kl / tokens, loss / tokens


def test_prices_equal_the_divergence_on_unrelated_text(world: World) -> None:
    language_model, runs, group = world.language_model, runs_of(world), GROUP
    config = FindConfig(prompts=PROMPTS, wanted=("s",), unrelated=UNRELATED, held_out=("a red", "very old"))
    found = measure(language_model, runs, config, [group])
    (effect,) = found.effects
    assert effect.price == pytest.approx(price_of(language_model, runs, group)[0], rel=1e-3)
    before, after = (wish_of(language_model, runs, edits, config) for edits in ((), group))
    assert effect.change == pytest.approx(after - before, abs=1e-4)
    assert effect.random_price > 0
    drawn = _Search.prepare(language_model, runs, config, None, NO_CALLBACKS).random_groups([group])
    wishes = [wish_of(language_model, runs, edits, config) for edits in drawn]
    assert found.random_change == pytest.approx(max(wishes) - before, abs=1e-4)
    assert found.random_experts == len(drawn)
    elsewhere = [config.model_copy(update={"prompts": (text,)}) for text in config.held_out]
    changes = [
        [wish_of(language_model, runs, edits, each) - wish_of(language_model, runs, (), each) for each in elsewhere]
        for edits in (group, *drawn)
    ]
    own, *random = changes
    assert effect.held_out_change == pytest.approx(sum(own) / 2, abs=1e-4)
    assert found.random_held_out_change == pytest.approx(max(map(sum, random)) / 2, abs=1e-4)
    assert effect.held_out_rises == sum(a > max(0, *others) for a, *others in zip(*changes, strict=True))
    runs.reverse()
    late = group[1]
    named, first = measure(language_model, runs, config, [(late,), (late.model_copy(update={"run": None}),)]).effects
    assert first.change == named.change, "an edit without a run is one of the first"


def test_predicted_prices_are_the_divergence_to_second_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effect_search, "SIGNS", 600)
    monkeypatch.setattr(effect_search, "PRIOR_SIGNS", 0)
    language_model, runs = world.language_model, runs_of(world)
    prices = unit_prices(language_model, runs, texts=UNRELATED)
    config = FindConfig(prompts=PROMPTS, wanted=("s",), unrelated=UNRELATED)
    language_model.module.double()
    for name in ("early", "late"):
        edits = [Edit(run=name, expert=expert, mode="add", strength=0.02) for expert in (1, 5, 9)]
        for edit, effect in zip(
            edits, measure(language_model, runs, config, [(edit,) for edit in edits]).effects, strict=True
        ):
            assert float(prices[name][edit.expert]) * 0.02**2 == pytest.approx(effect.price, rel=0.2)


def test_a_price_shrinks_towards_its_layers_mean(world: World) -> None:
    runs = runs_of(world)
    units = {"early": {expert: float(expert % 2) for expert in range(33)}, "late": {}}
    prices = unit_prices(world.language_model, runs, units, UNRELATED)
    raw_N = world.language_model.unit_prices[runs[0].layer][UNRELATED]
    alive_N = torch.arange(33) % 2 == 1
    draws = 2 * effect_search.SIGNS
    expected_N = (draws * raw_N + 16 * raw_N[alive_N].mean()) / (draws + 16)
    torch.testing.assert_close(prices["early"], torch.where(alive_N, expected_N, 0.0))


def test_unrelated_texts_are_cut_to_the_context_length(world: World) -> None:
    config = WISHES["token"].model_copy(update={"unrelated": ("red " * 100,)})
    edit = (Edit(run="early", expert=3, mode="add", strength=1),)
    (long,) = measure(world.language_model, runs_of(world), config, [edit]).effects
    config = config.model_copy(update={"unrelated": (("red " * 100)[:UNRELATED_TOKENS],)})
    assert measure(world.language_model, runs_of(world), config, [edit]).effects == (long,)


def test_a_text_that_is_too_improbable_for_float64_has_probability_zero(world: World) -> None:
    config = FindConfig(prompts=("the",), wanted=("red blue " * 9,), unrelated=UNRELATED, hits=1)
    found = find(sure_language_model(), runs_of(world)[0], config)
    assert found.wish < -750
    assert found.probability == 0


def test_dead_experts_are_not_found(world: World) -> None:
    units = {"early": {expert: float(expert < 4) for expert in range(33)}, "late": {0: 0.0}}
    found = find(world.language_model, runs_of(world), WISHES["token"], units)
    assert {(each.edit.run, each.edit.expert) for each in found.experts} <= {("early", expert) for expert in range(4)}


def test_invalid_searches_are_errors(world: World) -> None:
    runs = runs_of(world)
    for edit in ("early/3:scale:2", "early/3:add:1@prompt"):
        with pytest.raises(UserError, match="only, not for early/3"):
            measure(world.language_model, runs, WISHES["token"], [(Edit.model_validate(edit),)])
    with pytest.raises(UserError, match="both replace layer 0"):
        find(world.language_model, [runs[0], run_of(world, "again", 0)], WISHES["token"])
    assert measure(tiny_language_model(), runs, WISHES["token"], []).effects == ()


def test_the_price_of_edits_is_their_divergence_loss_and_ability(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    language_model, runs = world.language_model, runs_of(world)
    items = (
        ability_items()[0]._replace(prompt="the old", right=" fox", wrong=" dog"),
        ability_items()[80]._replace(prompt="a red", right=" sat down", wrong="s"),
        ability_items()[-1]._replace(prompt="very", right=" old", wrong=" red blue"),
    )
    monkeypatch.setattr(edit_price_module, "ability_items", lambda: items)
    monkeypatch.setattr(edit_price_module, "UNRELATED", UNRELATED)
    price = edit_price(language_model, runs, (GROUP[0].model_copy(update={"run": None}), GROUP[1]))
    kl, loss_increase = price_of(language_model, runs, GROUP)
    assert price.edits.kl == pytest.approx(kl, rel=1e-3)
    assert price.edits.loss_increase == pytest.approx(loss_increase, abs=1e-5)
    assert price.random.kl > 0 and price.items == 3
    assert 0 < price.edits.kl_error < price.edits.kl and price.edits.loss_error > 0

    outcomes: list[list[float]] = []
    drawn = EditedPasses(language_model, runs, layers_of(language_model, runs), all_units(runs), NO_CALLBACKS)
    one, two = drawn.random_groups([GROUP])
    for ability, edits in ((price.original_ability, ()), (price.ability, GROUP), (None, one), (None, two)):
        solved = {}
        for item in items:
            right, wrong = (
                probabilities(language_model, runs, edits, item.prompt, [text]) for text in (item.right, item.wrong)
            )
            solved[item.kind] = float(right > wrong)
        if ability is not None:
            assert {kind: getattr(ability, kind) for kind in solved} == solved
            assert ability.all == pytest.approx(sum(solved.values()) / 3, abs=1e-12)  # saved digits round as new ones
        outcomes.append([*solved.values()])
    original, own, *others = outcomes
    changes = [float(edited - before) for before, edited in zip(original, own, strict=True)]
    assert price.ability_error == pytest.approx(stdev(changes) / 3**0.5)
    differences = [edited - (first + second) / 2 for edited, first, second in zip(own, *others, strict=True)]
    assert price.difference_error == pytest.approx(stdev(differences) / 3**0.5)
    assert price.ability.all - price.random_ability.all == pytest.approx(fmean(differences))


def test_edits_that_change_nothing_cost_nothing(world: World) -> None:
    runs = runs_of(world)
    price = edit_price(world.language_model, runs[:1], [Edit(expert=3, mode="scale", strength=1)])
    assert (price.edits.kl, price.edits.loss_increase) == (0, 0)
    assert (price.edits.kl_error, price.edits.loss_error, price.ability_error) == (0, 0, 0)
    assert price.ability == price.original_ability == price.random_ability
    with pytest.raises(UserError, match="no edit"):
        edit_price(world.language_model, runs, [])


def test_the_ability_test_has_200_different_items_of_three_kinds() -> None:
    items = ability_items()
    assert len(items) == len({item.prompt for item in items}) == 200
    assert {item.kind for item in items} == {"facts", "arithmetic", "grammar"}
    assert [item for item in items if item.right == item.wrong or not item.right.startswith(" ")] == []


@pytest.mark.parametrize(
    ("kl", "ability", "of_random", "costly", "verdict"),
    [
        (0.3, 0.85, 0.89, True, "3.0 × as much as random experts, and loses 4.0 points more of ability (± 1.2)."),
        (0.12, 0.89, 0.9, False, "Changes other text about as much as random experts, without a clearly larger loss"),
        (0.15, 0.9, 0.9, False, "Changes other text 1.5 × as much as random experts, without"),
        (0.2, 0.9, 0.9, True, "Costly: changes other text 2.0 ×"),
        (0.12, 0.85, 0.9, True, "Costly: changes other text about as much as random experts, and loses"),
        (0.12, 0.85, 0.85, False, "Changes other text about as much as random experts, without"),
        (0.01, 0.9, 0.9, False, "Cheap: changes other text less than random experts,"),
    ],
)
def test_a_price_has_a_verdict(kl: float, ability: float, of_random: float, costly: bool, verdict: str) -> None:
    before, after, by_random = (Ability(each, each, each, each) for each in (0.9, ability, of_random))
    own, random = (PriceOnText(each, 0.1, 0.02, 0.02) for each in (kl, 0.1))
    price = EditPrice(own, random, 200, before, after, by_random, 0.01, 0.006)
    assert price.is_costly == costly
    assert verdict in price.verdict
    sent = TypeAdapter(EditPrice).dump_python(price, mode="json")
    assert sent["verdict"] == price.verdict
    assert TypeAdapter(EditPrice).validate_python(sent) == price  # a page saves it with a session
    interval = 2 * math.hypot(0.02 / kl, 0.02 / 0.1) * kl / 0.1
    lost = signed(100 * (ability - of_random), 1)
    figures = f"KL {kl / 0.1:.1f} ± {interval:.1f} × random, ability {lost} ± 1.2 points against random"
    assert price.figures.replace("\N{NO-BREAK SPACE}", " ") == figures
    assert price.ability_parts.endswith(f"Points against random: facts {lost}, arithmetic {lost} and grammar {lost}.")
    of_earlier = replace(price, difference_error=None)  # its paired interval is unknown
    earlier = of_earlier.figures.replace("\N{NO-BREAK SPACE}", " ")
    assert earlier == f"{figures.replace('± 1.2 points', '± 2.0 points')} (± of the edits alone)"
    assert ("± 2.0 by the edits alone" in of_earlier.verdict) == ("and loses" in of_earlier.verdict)
