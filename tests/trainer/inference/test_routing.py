"""Routing and predictions of a text, against the layer itself and plain forward passes."""

import pytest
import torch
from torch import Tensor

from mxd.trainer.config import Edit, Sampling, SteeringConfig
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.inference.results import SteeredGeneration
from mxd.trainer.inference.routing import predict, route, route_together, top_ids
from mxd.trainer.inference.steering import steer
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import World, run_of

TEXT = "the old fox sang, café ☕"


def test_experts_equal_the_layers_routing(world: World, run: Run) -> None:
    routing = route(world.language_model, run, TEXT)
    assert [token.start for token in routing.tokens] == [True] + [False] * len(TEXT.encode())
    assert "".join(token.text for token in routing.tokens[1:]) == TEXT
    ids = torch.tensor([prompt_ids(world.language_model, TEXT)])
    chosen = run.layer.route(world.language_model.capture(1, ids).input_TI)
    for token, activations, experts in zip(routing.tokens, *(values.tolist() for values in chosen), strict=True):
        expected = [(expert, value) for expert, value in zip(experts, activations, strict=True) if value > 0]
        assert [expert.expert for expert in token.experts] == [expert for expert, _ in expected]
        assert [expert.activation for expert in token.experts] == pytest.approx(
            [value for _, value in expected], rel=1e-4
        )
        assert sum(expert.share for expert in token.experts) == pytest.approx(1.0, abs=1e-5)


def test_prompts_begin_with_the_start_token_of_training(world: World, run: Run) -> None:
    assert run.config.text.start_token == "<|endoftext|>"
    text = run.config.text.model_copy(update={"start_token": "a"})
    other = Run(run.folder, run.config.model_copy(update={"text": text}))
    first = route(world.language_model, other, TEXT).tokens[0]
    assert (first.text, first.start) == ("a", True)
    sampling = Sampling(max_tokens=3, temperature=0)
    first_kl = []
    for each in (run, other):
        config = SteeringConfig(prompt=TEXT, edits=(Edit(expert=3, mode="add", strength=8),), sampling=sampling)
        steps = steer(world.language_model, each, config)
        first_kl.append(SteeredGeneration.collect(each.name, TEXT, steps).tokens("baseline")[0].kl)
    assert first_kl[0] != first_kl[1]


def test_empty_and_too_long_text(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="text is empty"):
        route(world.language_model, run, "")
    with pytest.raises(TooLongError, match="accepts 128"):
        route(world.language_model, run, "x" * 128)
    assert len(route(world.language_model, run, "x" * 127).tokens) == 128


def test_run_of_another_language_model(world: World, run: Run) -> None:
    layer = run.layer
    run.__dict__["layer"] = type(layer)(layer.config.model_copy(update={"input_width": 8}))
    with pytest.raises(UserError, match="that the run was trained on"):
        route(tiny_language_model("gpt2"), run, TEXT)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "opt"])
def test_batched_equals_alone(world: World, family: str) -> None:
    language_model = tiny_language_model(family)
    runs = [run_of(world, "late", 1), run_of(world, "early", 0)]
    together = route_together(language_model, runs, TEXT)
    assert [routing.run for routing in together] == ["late", "early"]
    for run, actual in zip(runs, together, strict=True):
        expected = route(language_model, run, TEXT)
        for token, alone in zip(actual.tokens, expected.tokens, strict=True):
            assert (token.id, token.text, token.start) == (alone.id, alone.text, alone.start)
            assert [each.expert for each in token.experts] == [each.expert for each in alone.experts]
            assert [each.activation for each in token.experts] == pytest.approx(
                [each.activation for each in alone.experts], abs=1e-4
            )


def test_runs_that_cannot_be_routed_together(world: World) -> None:
    language_model: LanguageModel = world.language_model
    one = run_of(world, "one", 1)
    with pytest.raises(UserError, match="both replace layer 1"):
        route_together(language_model, [one, run_of(world, "two", 1)], TEXT)
    with pytest.raises(UserError, match="listed twice"):
        route_together(language_model, [one, one], TEXT)
    with pytest.raises(UserError, match="text is empty"):
        route_together(language_model, [one], "")


@pytest.mark.parametrize("family", ["llama", "opt", "gpt-neox", "falcon"])
def test_predictions_equal_those_of_whole_forward_passes(world: World, family: str) -> None:
    language_model, run = tiny_language_model(family), run_of(world, "one", 1)
    actual = predict(language_model, run, TEXT)
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    original = language_model.logits(ids)[0].log_softmax(-1)
    with language_model.replace({1: run.layer}):
        replaced = language_model.logits(ids)[0].log_softmax(-1)
    with language_model.replace_mlps({1: lambda _x, mlp: torch.zeros_like(mlp())}):
        zeroed = language_model.logits(ids)[0].log_softmax(-1)
    kl_T = _kl(original, replaced)
    assert kl_T.max() > 1e-3
    assert [token.kl for token in actual.tokens] == pytest.approx(kl_T.tolist(), rel=1e-3, abs=1e-6)
    zeroed_kl = [token.zeroed_kl for token in actual.tokens]
    assert zeroed_kl == pytest.approx(_kl(original, zeroed).tolist(), rel=1e-3, abs=1e-6)
    for index, token in enumerate(actual.tokens):
        assert token.predictions[0].original == pytest.approx(original[index].max().exp().item(), rel=1e-5)
        for prediction in token.predictions:
            assert prediction.original == pytest.approx(original[index, prediction.id].exp().item(), rel=1e-3)
            assert prediction.replaced == pytest.approx(replaced[index, prediction.id].exp().item(), rel=1e-3)
    other = run_of(world, "zero", 0)
    with language_model.replace({1: run.layer, 0: other.layer}):
        together_T = _kl(original, language_model.logits(ids)[0].log_softmax(-1))
    both = predict(language_model, run, TEXT, others=[other])
    assert [token.kl for token in both.tokens] == pytest.approx(together_T.tolist(), rel=1e-3, abs=1e-6)


def _kl(original: Tensor, other: Tensor) -> Tensor:
    return (original.exp() * (original - other)).sum(-1)


@pytest.mark.parametrize("width", [5, 64, 500, 700])
def test_top_ids_equal_topk(width: int) -> None:
    values_TV = torch.randn(9, width)
    assert torch.equal(top_ids(values_TV, 6), values_TV.topk(min(6, width), dim=1).indices)
