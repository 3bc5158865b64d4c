"""Rows that join and leave a batch get the same results as alone."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
