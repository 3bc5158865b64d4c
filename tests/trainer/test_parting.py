"""A text that becomes several rows gives each of them what it would have had by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.language_models import CONFIGS, tiny_language_model
from tests.runs import World
from tests.trainer.test_steering import make_run
from trainer.config import Edit, Sampling, SteeringConfig
from trainer.generation import Arrangement, Row, RowBatch
from trainer.language_model import LanguageModel
from trainer.parting import parted
from trainer.steering import NewToken, Steering, steer

EDITS = (Edit(expert=3, mode="add", strength=30),)
TEXT_OF = [1, 0, 1, 1, 0]


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("first", [0, 1, 2])
def test_rows_that_part_are_as_rows_that_were_apart(family: str, first: int) -> None:
    language_model = tiny_language_model(family)
    ids_2T = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 1]])
    seen_2T = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    apart = logits(language_model, ids_2T[TEXT_OF], seen_2T[TEXT_OF])
    with parted(language_model.anatomy.blocks, first, TEXT_OF):
        found = logits(language_model, ids_2T, seen_2T)
    torch.testing.assert_close(found, apart, rtol=1e-4, atol=1e-4)
    assert len(logits(language_model, ids_2T, seen_2T)) == 2  # nothing is left behind
    assert language_model.parts(first)


def logits(language_model: LanguageModel, ids: Tensor, seen: Tensor) -> Tensor:
    found: Tensor = language_model.module(input_ids=ids, attention_mask=seen).logits[:, -1]
    return found


def test_a_block_that_cannot_part_is_found_out(world: World) -> None:
    language_model = tiny_language_model()
    read: list[int] = []

    def as_many_as_were_read(_module: Any, hidden: tuple[Tensor, ...]) -> None:
        if len(hidden[0]) != read[-1]:
            raise RuntimeError("The size of tensor a must match the size of tensor b")

    embeddings, block = language_model.module.get_input_embeddings(), language_model.anatomy.block(1)
    embeddings.register_forward_pre_hook(lambda _module, ids: read.append(len(ids[0])))
    block.input_layernorm.register_forward_pre_hook(as_many_as_were_read)  # type: ignore[union-attr]
    apart = list(steer(world.language_model, make_run(world), config("the old fox", EDITS, 12, seed=2)))
    assert tokens(list(steer(language_model, make_run(world), config("the old fox", EDITS, 12, seed=2)))) == tokens(
        apart
    )
    assert not language_model.parts(1)
    assert language_model.parts(2)
    assert max(read) == 4  # each text, without and with edits


def test_blocks_before_the_first_edited_one_read_each_text_once(world: World) -> None:
    language_model, run = tiny_language_model(), make_run(world)  # of block 1
    rows: list[list[int]] = [[] for _ in language_model.anatomy.blocks]
    assert language_model.parts(1)  # found out before anybody counts
    for block, seen in zip(language_model.anatomy.blocks, rows, strict=True):
        block.input_layernorm.register_forward_pre_hook(partial(count, seen))  # type: ignore[union-attr]
    steps = list(steer(language_model, run, config("the old fox", EDITS, 12, seed=2)))
    assert {step.arm for step in steps if isinstance(step, NewToken)} == {"default", "steered"}
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
    alone = [tokens(list(steer(language_model, one, it))) for one, it in asked]
    batch, parts_at = RowBatch(language_model), []
    going = [Steering.prepare(language_model, [one], it, {}) for one, it in asked]
    found = [tokens(list(going[0].join(batch)))]
    parts_at.append(batch.arranged.parts_at)
    found.append(tokens(list(going[1].join(batch))))
    while any(not it.finished for it in going):
        parts_at.append(batch.arranged.parts_at)
        step = batch.step()
        for told, it in zip(found, going, strict=True):
            if not it.finished:
                told.extend(tokens(list(it.advance(batch, step))))
    assert found == alone
    assert [parts_at[0], parts_at[1], parts_at[-1]] == [2, 1, 2]


def tokens(steps: list[Any]) -> list[tuple[Any, ...]]:
    return [(step.arm, step.position, step.id) for step in steps if isinstance(step, NewToken)]


def test_where_a_block_has_what_another_arrangement_wants() -> None:
    one, two = [1], [2]
    a, b, c, d = Row(one), Row(two), Row(one), Row(two)
    before = Arrangement([a, b, c, d], 1)
    assert [row.ids for row in before.texts] == [one, two] and before.text_of == [0, 1, 0, 1]
    assert before.places(2, Arrangement([d, c], 1), {}) == [[1, 0], [3, 2]]
    assert before.places(2, Arrangement([d, c], 0), {}) == [[1, 0], [3, 2]]
    assert before.places(3, Arrangement([b, c, d], 2), {}) == [[1, 0], [1, 2], [1, 2, 3]]
    fork = Row([1])
    assert before.places(2, Arrangement([a, c, fork], 1), {fork: c}) == [[0, 0], [0, 2, 2]]
