"""Rows that join and leave a batch get what they would have got alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.language_models import tiny_language_model
from tests.runs import World
from tests.trainer.test_steering import make_run
from trainer.config import Edit, Sampling, SteeringConfig
from trainer.generation import Row, RowBatch, Touches
from trainer.language_model import LanguageModel
from trainer.run import Run
from trainer.steering import NewToken, Steering, steer

REQUESTS = [
    ("the", 9, ()),
    ("the old fox sat and sang to the red dog", 5, (Edit(expert=3, mode="add", strength=8),)),
    ("a", 14, (Edit(expert=3, mode="scale", strength=4), Edit(expert=9, mode="off"))),
    ("very old, very blue", 11, (Edit(expert=20, mode="set", strength=5),)),
]


def requests(scope: str = "all") -> list[SteeringConfig]:
    return [
        SteeringConfig.model_validate(
            {
                "prompt": prompt,
                "edits": edits,
                "scope": scope,
                "apply": "replace" if number % 2 else "on-top",
                "sampling": Sampling(max_tokens=length, temperature=1.0, seed=number, samples=1 + number % 2),
            }
        )
        for number, (prompt, length, edits) in enumerate(REQUESTS)
    ]


def tokens(steps: list[Any]) -> list[tuple[Any, ...]]:
    return [(s.sample, s.arm, s.position, s.id) for s in steps if isinstance(s, NewToken)]


def together(language_model: LanguageModel, run: Run, configs: list[SteeringConfig], apart: int) -> list[list[Any]]:
    """All requests in one batch, a new one joining every ``apart`` steps."""
    batch, waiting = RowBatch(language_model), list(enumerate(configs))
    found: list[list[Any]] = [[] for _ in configs]
    running: dict[int, Steering] = {}
    number = 0
    while waiting or running:
        if waiting and number % apart == 0:
            place, config = waiting.pop(0)
            running[place] = Steering.prepare(language_model, [run], config, {})
            found[place].extend(running[place].join(batch))
        running = {place: each for place, each in running.items() if not each.finished}
        if running:
            step = batch.step()
            for place, each in running.items():
                found[place].extend(each.advance(batch, step))
            going = {id(text.own) for each in running.values() for text in each.continuations if not text.reason}
            written = {id(row) for row in batch.rows if row.writer is not None}
            assert written == going  # a text that has ended costs nothing
        running = {place: each for place, each in running.items() if not each.finished}
        number += 1
    assert not batch.rows
    return found


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "opt", "gemma2", "falcon"])
@pytest.mark.parametrize("apart", [1, 3])
def test_together_is_as_alone(world: World, family: str, apart: int) -> None:
    language_model, run = tiny_language_model(family), make_run(world)
    alone = [list(steer(language_model, run, config)) for config in requests()]
    for found, wanted in zip(together(language_model, run, requests(), apart), alone, strict=True):
        assert sorted(tokens(found)) == sorted(tokens(wanted))


def test_a_row_that_leaves_changes_nothing_for_the_others(world: World) -> None:
    batch = RowBatch(world.language_model)
    rows = [Row([5, 6, 7]), Row([9, 8, 7, 6, 5, 4]), Row([1, 2])]
    for row in rows:
        row.ids.append(int(batch.join([Row(list(row.ids))], [(0, row)]).log_p_BV.argmax()))
    for step in range(6):
        log_p_BV = batch.step().log_p_BV
        for row, log_p_V in zip(batch.rows, log_p_BV, strict=True):
            wanted = world.language_model.logits(torch.tensor([row.ids]))[0, -1].log_softmax(-1)
            torch.testing.assert_close(log_p_V, wanted, rtol=1e-4, atol=1e-4)
            row.ids.append(int(log_p_V.argmax()))
        if step == 2:
            batch.leave([rows[1]])
    assert [len(row.ids) for row in rows] == [10, 10, 9]


def test_what_edits_touch() -> None:
    assert [Touches(2, 4).position(place) for place in range(5)] == [False, False, True, True, False]
    assert [Touches(1, None, frozenset({0, 3})).position(place) for place in range(5)] == [False] * 3 + [True, False]
    assert Row([1, 2, 3], touches=Touches(first=3)).touched(1, 5) == [False, False, True, True]
