"""Rows that join and leave a batch, or share blocks, get the same results as alone."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import Gemma2Config, MistralConfig, PreTrainedConfig

from mxd.trainer.config import Edit, Sampling, SteeringConfig
from mxd.trainer.inference.generation import (
    RowBatch,
    _Nucleus,
    apply_repetition_penalty,
    gumbel_noise,
    gumbel_noises,
    sample_tokens,
)
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.language_model.kv_cache import variant_tokens
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import CONFIGS, OTHER_CACHES, tiny_language_model
from tests.helpers.runs import World, run_of

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
