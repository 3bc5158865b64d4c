"""Texts routed, and rows that share blocks, join and leave a batch: the results are those of plain passes."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import Gemma2Config, MistralConfig, PreTrainedConfig

from mxd.trainer.config.steering import Edit, Sampling, SteeringConfig
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.inference.generation import (
    RowBatch,
    _Nucleus,
    apply_repetition_penalty,
    gumbel_noise,
    gumbel_noises,
    sample_tokens,
)
from mxd.trainer.inference.results import SteeredGeneration, TokenEvent
from mxd.trainer.inference.routing import predict, route, route_together, top_ids
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.language_model.kv_cache import variant_tokens
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.run import Run
from tests.helpers.runs import CONFIGS, OTHER_CACHES, World, run_of, tiny_language_model

REQUESTS = [
    ("the", 9, ()),
    ("the old fox sat and sang to the red dog", 5, (Edit(expert=3, mode="add", strength=8),)),
    ("a", 14, (Edit(expert=3, mode="scale", strength=4), Edit(expert=9, mode="ablate"))),
    ("very old, very blue", 11, (Edit(expert=20, mode="set", strength=5),)),
]


def requests(scope: str = "all") -> list[SteeringConfig]:
    return [
        SteeringConfig.model_validate(
            {
                "prompt": prompt,
                "edits": edits,
                "scope": scope,
                "mode": "replace" if number % 2 else "residual",
                "k": 2 if number == 1 else None,
                "sampling": Sampling(max_tokens=length, temperature=1.0, seed=number, samples=1 + number % 2),
            }
        )
        for number, (prompt, length, edits) in enumerate(REQUESTS)
    ]


def tokens(steps: list[Any]) -> list[tuple[Any, ...]]:
    return [(s.sample, s.variant, s.position, s.id) for s in steps if isinstance(s, TokenEvent)]


def together(
    language_model: LanguageModel, runs: list[Run], configs: list[SteeringConfig], apart: int
) -> list[list[Any]]:
    """Run all requests in one batch, each with its run, with a new one every ``apart`` steps."""
    batch, waiting = RowBatch(language_model), list(enumerate(configs))
    actual: list[list[Any]] = [[] for _ in configs]
    running: dict[int, Steering] = {}
    number = 0
    while waiting or running:
        if waiting and number % apart == 0:
            index, config = waiting.pop(0)
            running[index] = Steering.prepare(language_model, [runs[index]], config)
            actual[index].extend(running[index].join(batch))
        running = {index: each for index, each in running.items() if not each.finished}
        if running:
            step = batch.step()
            for index, each in running.items():
                actual[index].extend(each.advance(batch, step))
            going = {id(text.own) for each in running.values() for text in each.texts if not text.reason}
            written = {id(row) for row in batch.rows if row.sampler is not None}
            assert written == going  # a text that has ended costs nothing
        running = {index: each for index, each in running.items() if not each.finished}
        number += 1
    assert not batch.rows
    return actual


@pytest.mark.parametrize("family", [*CONFIGS, *OTHER_CACHES])
@pytest.mark.parametrize("apart", [1, 3])
def test_batched_equals_alone(world: World, family: str, apart: int) -> None:
    """Requests edit several blocks, so that the blocks before the first edit change as requests come and go."""
    language_model, runs = tiny_language_model(family), [run_of(world, layer=layer) for layer in (2, 1, 2, 0)]
    alone = [list(steer(language_model, run, config)) for run, config in zip(runs, requests(), strict=True)]
    for actual, expected in zip(together(language_model, runs, requests(), apart), alone, strict=True):
        assert sorted(tokens(actual)) == sorted(tokens(expected))


PLAIN = Sampling(temperature=1, top_p=1, top_k=0, repetition_penalty=1)
LOGITS_V = torch.tensor([0.1, 3.0, 2.9, -1.0, 0.5])


def sample(sampling: Sampling, logits_V: torch.Tensor, count: int = 4000) -> torch.Tensor:
    noise_RV = torch.stack([gumbel_noise(7, step, len(logits_V)) for step in range(count)])
    ids = sample_tokens(logits_V.expand(count, -1), [set()] * count, [sampling] * count, noise_RV)
    return torch.bincount(torch.tensor(ids), minlength=len(logits_V)) / count


def test_frequencies_match_probabilities() -> None:
    torch.testing.assert_close(sample(PLAIN, LOGITS_V), LOGITS_V.softmax(dim=0), rtol=0, atol=0.03)


@given(st.integers(1, 400), st.floats(0.01, 1), st.integers(0, 300), st.floats(0.01, 4), st.integers(0, 1000))
def test_filters_equal_a_full_sort(size: int, top_p: float, top_k: int, spread: float, seed: int) -> None:
    logits_V = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread
    sampling = PLAIN.model_copy(update={"top_p": top_p, "top_k": top_k})
    order = logits_V.argsort(descending=True, stable=True)[: top_k or size]
    probabilities = logits_V[order].softmax(dim=0)
    before = probabilities.cumsum(dim=0) - probabilities
    # Two bounds, for rounding decides on those whose betters hold top_p almost exactly.
    surely, perhaps = (set(order[before < top_p + room].tolist()) for room in (-1e-9, 1e-9))
    actual = _Nucleus(logits_V.unsqueeze(0), [sampling]).allowed(torch.tensor([0]))[0].nonzero().flatten()
    assert surely <= set(actual.tolist()) <= perhaps


@given(st.integers(2, 400), st.floats(0.01, 1), st.integers(0, 300), st.floats(0.01, 4), st.integers(0, 1000))
def test_the_best_allowed_token_is_sampled(size: int, top_p: float, top_k: int, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits_RV = torch.randn(6, size, generator=generator, dtype=torch.float64) * spread
    noise_RV = torch.stack([gumbel_noise(seed, row, size) for row in range(6)])
    filtered = PLAIN.model_copy(update={"top_p": top_p, "top_k": top_k})
    greedy = filtered.model_copy(update={"temperature": 0})
    kept_RV = _Nucleus(logits_RV, [filtered] * 6).allowed(torch.arange(6))
    expected = torch.where(kept_RV, logits_RV + noise_RV, -torch.inf).argmax(dim=1)
    expected[3] = logits_RV[3].argmax()
    samplings = [*[filtered] * 3, greedy, *[filtered] * 2]
    assert sample_tokens(logits_RV, [set()] * 6, samplings, noise_RV) == expected.tolist()


def test_repetition_penalty_lowers_used_tokens() -> None:
    sampling = PLAIN.model_copy(update={"repetition_penalty": 2.0})
    logits_RV = apply_repetition_penalty(LOGITS_V.repeat(2, 1), [{1, 3}, {4}], [sampling] * 2)
    expected_RV = torch.tensor([[0.1, 1.5, 2.9, -2.0, 0.5], [0.1, 3.0, 2.9, -1.0, 0.25]])
    torch.testing.assert_close(logits_RV, expected_RV)


def test_noise_of_several_steps_equals_single_steps() -> None:
    steps = [(0, 3), (2**40, 0), (0, 4)]
    assert torch.equal(gumbel_noises(steps, 1001), torch.stack([gumbel_noise(*step, 1001) for step in steps]))


EDITS = (Edit(expert=3, mode="add", strength=30),)


def test_blocks_before_the_first_edit_compute_each_text_once(world: World) -> None:
    language_model, run = tiny_language_model(), run_of(world)  # of block 1
    rows: list[list[int]] = [[] for _ in language_model.architecture.blocks]
    assert language_model.can_grow_cache and language_model.can_share_prefix(1)  # found out before anybody counts
    for block, seen in zip(language_model.architecture.blocks, rows, strict=True):
        block.input_layernorm.register_forward_pre_hook(partial(count, seen))  # type: ignore[union-attr]
    steps = list(steer(language_model, run, config("the old fox", EDITS, 12, seed=2)))
    assert {step.variant for step in steps if isinstance(step, TokenEvent)} == {"baseline", "steered"}
    # The first block is given the prompt once, then each text; the others each text without and with edits.
    assert rows[0][0] == 1 and rows[0][-1] == 2
    assert [2 * texts for texts in rows[0]] == rows[1] == rows[2]


def count(seen: list[int], _module: Any, hidden: tuple[Tensor, ...]) -> None:
    seen.append(len(hidden[0]))


def config(prompt: str, edits: tuple[Edit, ...], tokens: int, seed: int = 0) -> SteeringConfig:
    return SteeringConfig(prompt=prompt, edits=edits, sampling=Sampling(max_tokens=tokens, temperature=1.0, seed=seed))


IDS = [5, 6, 7, 8, 9, 3, 2, 1, 4, 6, 2, 8]
POSITIONS = [0, 3, 3, 7, 11, 9]
ADDED = torch.randn(len(POSITIONS), 16, generator=torch.Generator().manual_seed(1))


def assert_equal_to_shorter_texts(language_model: LanguageModel, layer: int) -> None:
    def at_variants(_x: Tensor, mlp: Mlp) -> Tensor:
        output_1SO = mlp().clone()
        output_1SO[0, len(IDS) :] += ADDED
        return output_1SO

    text, original_TW = torch.tensor([IDS]), language_model.residual(torch.tensor([IDS]))[0]
    with (
        variant_tokens(language_model.architecture.blocks, layer, torch.tensor(POSITIONS)) as residuals,
        language_model.replace_mlps({layer: at_variants}),
    ):
        torch.testing.assert_close(language_model.residual(text)[0], original_TW)
    for position, added_O, actual_W in zip(POSITIONS, ADDED, residuals[0], strict=True):

        def at_the_end(_x: Tensor, mlp: Mlp, added_O: Tensor = added_O) -> Tensor:
            output_1TO = mlp().clone()
            output_1TO[0, -1] += added_O
            return output_1TO

        with language_model.replace_mlps({layer: at_the_end}):
            expected_W = language_model.residual(torch.tensor([IDS[: position + 1]]))[0, -1]
        torch.testing.assert_close(actual_W, expected_W, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("layer", [0, 2])
def test_a_variant_is_computed_as_if_the_text_ended_with_it(family: str, layer: int) -> None:
    language_model = tiny_language_model(family)
    assert language_model.can_append_variants(layer)
    assert_equal_to_shorter_texts(language_model, layer)


@pytest.mark.parametrize("config", [MistralConfig, Gemma2Config])
def test_a_sliding_window_is_that_of_the_token(config: type[PreTrainedConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    short = config(**{**CONFIGS["mistral"].to_dict(), "sliding_window": 3, "model_type": config.model_type})
    monkeypatch.setitem(CONFIGS, "short-window", short)
    language_model = tiny_language_model("short-window")
    assert language_model.can_append_variants(1)
    assert_equal_to_shorter_texts(language_model, 1)


@pytest.mark.parametrize("family", OTHER_CACHES)
def test_blocks_that_mix_tokens_otherwise_are_detected_or_exact(family: str) -> None:
    """Convolutions and states read the tokens before a variant, which are other variants."""
    language_model = tiny_language_model(family)
    for layer in range(len(language_model.architecture.blocks)):
        if language_model.can_append_variants(layer):
            assert_equal_to_shorter_texts(language_model, layer)


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
def test_runs_routed_together_equal_each_alone(world: World, family: str) -> None:
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
