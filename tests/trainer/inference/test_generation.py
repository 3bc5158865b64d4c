"""Rows that join and leave a batch get the same results as alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mxd.trainer.config import Edit, Sampling, SteeringConfig
from mxd.trainer.inference.edits import EditPlan, LayerEdits, TextProgress
from mxd.trainer.inference.generation import RowBatch, SequenceState
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import OTHER_CACHES, tiny_language_model
from tests.helpers.layers import random_layer
from tests.helpers.runs import World
from tests.trainer.inference.test_steering import make_run

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
                "sampling": Sampling(max_tokens=length, temperature=1.0, seed=number, samples=1 + number % 2),
            }
        )
        for number, (prompt, length, edits) in enumerate(REQUESTS)
    ]


def tokens(steps: list[Any]) -> list[tuple[Any, ...]]:
    return [(s.sample, s.variant, s.position, s.id) for s in steps if isinstance(s, TokenEvent)]


def together(language_model: LanguageModel, run: Run, configs: list[SteeringConfig], apart: int) -> list[list[Any]]:
    """Run all requests in one batch, with a new one every ``apart`` steps."""
    batch, waiting = RowBatch(language_model), list(enumerate(configs))
    actual: list[list[Any]] = [[] for _ in configs]
    running: dict[int, Steering] = {}
    number = 0
    while waiting or running:
        if waiting and number % apart == 0:
            index, config = waiting.pop(0)
            running[index] = Steering.prepare(language_model, [run], config)
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


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "opt", "gemma2", "falcon", *OTHER_CACHES])
@pytest.mark.parametrize("apart", [1, 3])
def test_batched_equals_alone(world: World, family: str, apart: int) -> None:
    language_model, run = tiny_language_model(family), make_run(world)
    alone = [list(steer(language_model, run, config)) for config in requests()]
    for actual, expected in zip(together(language_model, run, requests(), apart), alone, strict=True):
        assert sorted(tokens(actual)) == sorted(tokens(expected))


@pytest.mark.parametrize("family", ["llama", "gpt2", "falcon", *OTHER_CACHES])
def test_steered_tokens_equal_those_of_a_hook_without_a_cache(world: World, family: str) -> None:
    """The right tokens: plain transformers on the whole text in every step, with a hook on the MLP."""
    language_model, run = tiny_language_model(family), make_run(world)
    assert language_model.can_grow_cache == (family not in OTHER_CACHES)
    prompt = "the old fox sat and sang to the red dog"
    sampling = Sampling(max_tokens=12, temperature=0.0, repetition_penalty=1.0)
    config = SteeringConfig(prompt=prompt, edits=(Edit(expert=3, mode="add", strength=8),), sampling=sampling)
    steered = [
        step
        for step in steer(language_model, run, config)
        if isinstance(step, TokenEvent) and step.variant == "steered"
    ]
    row_O = run.layer.table[3]
    tokenizer, layer = language_model.tokenizer, run.layer
    ids = [tokenizer.eos_token_id, *tokenizer(prompt)["input_ids"]]

    def hook(_module: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        x_TI = inputs[0].reshape(-1, 16)
        # The expert's activation grows by 8 units of 1: its output is (a C - m) * (z D + d), of which a C is linear.
        return output + 8 * (row_O * layer.dense_output(x_TI)).reshape(output.shape)

    block = language_model.architecture.block(run.config.layer)
    mlp = getattr(block, language_model.architecture.mlp_names(run.config.layer)[1])
    handle = mlp.register_forward_hook(hook)
    try:
        for step in steered:
            with torch.no_grad():
                log_p_V = language_model.module(torch.tensor([ids]), use_cache=False).logits[0, -1].log_softmax(-1)
            assert step.id == int(log_p_V.argmax())
            ids.append(step.id)
    finally:
        handle.remove()
    assert len(steered) > 3


def test_a_leaving_row_does_not_change_the_others(world: World) -> None:
    batch = RowBatch(world.language_model)
    rows = [SequenceState([5, 6, 7]), SequenceState([9, 8, 7, 6, 5, 4]), SequenceState([1, 2])]
    for row in rows:
        row.ids.append(int(batch.join([SequenceState(list(row.ids))], [(0, row)]).log_p_BV.argmax()))
    for step in range(6):
        log_p_BV = batch.step().log_p_BV
        for row, log_p_V in zip(batch.rows, log_p_BV, strict=True):
            expected = world.language_model.logits(torch.tensor([row.ids]))[0, -1].log_softmax(-1)
            torch.testing.assert_close(log_p_V, expected, rtol=1e-4, atol=1e-4)
            row.ids.append(int(log_p_V.argmax()))
        if step == 2:
            batch.leave([rows[1]])
    assert [len(row.ids) for row in rows] == [10, 10, 9]


@pytest.mark.parametrize(
    ("limits", "edited"),
    [
        ({"scope": "all"}, [0, 1, 2, 3, 4]),
        ({"scope": "generated"}, [3, 4]),
        ({"scope": "prompt"}, [0, 1, 2]),
        ({"scope": "generated", "positions": frozenset({1, 4})}, [1]),
    ],
)
def test_edited_positions(limits: dict[str, Any], edited: list[int]) -> None:
    progress = TextProgress(prompt_tokens=3, **limits)
    edits = LayerEdits(random_layer(), "residual", EditPlan.from_edits((Edit(expert=1, mode="ablate"),), {1: 1.0}, 33))
    plans = SequenceState([1, 2, 3], {1: edits}, progress).plans(1, 0, 5)
    assert [position for position, plan in enumerate(plans) if plan is edits.plan] == edited
    assert plans.count(None) == 5 - len(edited)
