"""Rows that share the blocks before the first edit get the same results as separate rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from mxd.trainer.config import Edit, Sampling, SteeringConfig
from mxd.trainer.inference.generation import BatchLayout, RowBatch, SequenceState
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.language_model.kv_cache import shared_prefix
from mxd.trainer.language_model.model import LanguageModel
from tests.helpers.language_models import CONFIGS, tiny_language_model
from tests.helpers.runs import World
from tests.trainer.inference.test_steering import make_run

EDITS = (Edit(expert=3, mode="add", strength=30),)
TEXT_OF = [1, 0, 1, 1, 0]


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("first", [0, 1, 2])
def test_shared_prefix_equals_separate_rows(family: str, first: int) -> None:
    language_model = tiny_language_model(family)
    ids_2T = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 1]])
    seen_2T = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    apart = logits(language_model, ids_2T[TEXT_OF], seen_2T[TEXT_OF])
    with shared_prefix(language_model.architecture.blocks, first, TEXT_OF):
        actual = logits(language_model, ids_2T, seen_2T)
    torch.testing.assert_close(actual, apart, rtol=1e-4, atol=1e-4)
    assert len(logits(language_model, ids_2T, seen_2T)) == 2  # nothing is left behind
    assert language_model.can_share_prefix(first)


def logits(language_model: LanguageModel, ids: Tensor, seen: Tensor) -> Tensor:
    actual: Tensor = language_model.module(input_ids=ids, attention_mask=seen).logits[:, -1]
    return actual


def test_blocks_that_cannot_share_a_prefix_are_detected(world: World) -> None:
    language_model = tiny_language_model()
    read: list[int] = []

    def as_many_as_were_read(_module: Any, hidden: tuple[Tensor, ...]) -> None:
        if len(hidden[0]) != read[-1]:
            raise RuntimeError("The size of tensor a must match the size of tensor b")

    embeddings, block = language_model.module.get_input_embeddings(), language_model.architecture.block(1)
    embeddings.register_forward_pre_hook(lambda _module, ids: read.append(len(ids[0])))
    block.input_layernorm.register_forward_pre_hook(as_many_as_were_read)  # type: ignore[union-attr]
    apart = list(steer(world.language_model, make_run(world), config("the old fox", EDITS, 12, seed=2)))
    assert tokens(list(steer(language_model, make_run(world), config("the old fox", EDITS, 12, seed=2)))) == tokens(
        apart
    )
    assert not language_model.can_share_prefix(1)
    assert language_model.can_share_prefix(2)
    assert max(read) == 4  # each text, without and with edits


def test_blocks_before_the_first_edit_compute_each_text_once(world: World) -> None:
    language_model, run = tiny_language_model(), make_run(world)  # of block 1
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


def test_a_request_that_edits_an_earlier_block_joins_and_leaves(world: World) -> None:
    language_model = tiny_language_model()
    run = make_run(world)
    later = replace(run, config=run.config.model_copy(update={"layer": 2}))
    later.__dict__["layer"] = run.layer
    asked = [
        (later, config("the old fox sat", (Edit(expert=3, mode="add", strength=20),), 14, 1)),
        (run, config("a", (Edit(expert=5, mode="add", strength=20),), 5, 2)),
    ]
    alone = [tokens(list(steer(language_model, one, each))) for one, each in asked]
    batch, split_blocks = RowBatch(language_model), []
    going = [Steering.prepare(language_model, [one], each) for one, each in asked]
    actual = [tokens(list(going[0].join(batch)))]
    split_blocks.append(batch.layout.split_block)
    actual.append(tokens(list(going[1].join(batch))))
    while any(not each.finished for each in going):
        split_blocks.append(batch.layout.split_block)
        step = batch.step()
        for events, each in zip(actual, going, strict=True):
            if not each.finished:
                events.extend(tokens(list(each.advance(batch, step))))
    assert actual == alone
    assert [split_blocks[0], split_blocks[1], split_blocks[-1]] == [2, 1, 2]


def tokens(steps: list[Any]) -> list[tuple[Any, ...]]:
    return [(step.variant, step.position, step.id) for step in steps if isinstance(step, TokenEvent)]


def test_sources_between_layouts() -> None:
    one, two = [1], [2]
    a, b, c, d = SequenceState(one), SequenceState(two), SequenceState(one), SequenceState(two)
    before = BatchLayout([a, b, c, d], 1)
    assert [row.ids for row in before.texts] == [one, two] and before.text_of == [0, 1, 0, 1]
    assert before.sources(2, BatchLayout([d, c], 1), {}) == [[1, 0], [3, 2]]
    assert before.sources(2, BatchLayout([d, c], 0), {}) == [[1, 0], [3, 2]]
    assert before.sources(3, BatchLayout([b, c, d], 2), {}) == [[1, 0], [1, 2], [1, 2, 3]]
    fork = SequenceState([1])
    assert before.sources(2, BatchLayout([a, c, fork], 1), {fork: c}) == [[0, 0], [0, 2, 2]]
