"""Commands that repeat what a store holds: the command line must take them, and make the same settings of them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from backend.commands.base import part_of
from backend.commands.evaluate_steering import EvaluateSteeringCommand
from backend.commands.finetune import FinetuneCommand
from backend.commands.importing import ImportCommand
from backend.commands.influence import InfluenceCommand
from backend.commands.parsing import command_from
from backend.commands.train import TrainCommand
from backend.repeating import commands, fit
from tests.runs import small_world
from trainer.config import (
    CollapseConfig,
    IndexConfig,
    InfluenceConfig,
    OptimizerConfig,
    Origin,
    SteeringEvaluationConfig,
    TextConfig,
    TrainConfig,
)
from trainer.gate_config import GateConfig
from trainer.indexing.build import build_index
from trainer.influence import build_influence
from trainer.run import Run
from trainer.steering_evaluation.build import evaluate_steering
from trainer.train import train

CONFIG = TrainConfig(
    name="a-run",
    language_model="some folder/model",
    language_model_dtype="bfloat16",
    layer=3,
    text=TextConfig(text="my text.jsonl", column="body", context=64, when_short="repeat"),
    tokens=4096,
    method="low-rank-mxd",
    num_experts=512,
    k=8,
    rank=5,
    gate=GateConfig(gate="two-level", groups=16, chosen_groups=4),
    start="paper",
    optimizer=OptimizerConfig(learning_rate=2e-3, warmup=0.1, decay=0.2, batch=512, window=2048),
    collapse=CollapseConfig(k_spread=0.5, balance=0.01, diversity=0.1, revive_after=1000),
    seed=1,
    text_seed=0,
)


def typed(config: TrainConfig) -> Any:
    return command_from(shlex.split(fit(config.model_dump(mode="json")))[1:])


@pytest.mark.parametrize("changed", [{}, {"num_experts": None, "text_seed": None}, {"smallest_k": 2, "rank": None}])
def test_a_fit_is_repeated_with_all_its_settings(changed: dict[str, Any], tmp_path: Path) -> None:
    config = CONFIG.model_copy(update=changed)
    command = typed(config)
    assert isinstance(command, TrainCommand)
    assert command._configs(tmp_path) == [config]


def test_what_was_fine_tuned_or_imported_has_its_own_command() -> None:
    tuned = typed(CONFIG.model_copy(update={"began_as": ("first", "second"), "next_token_weight": 0.5}))
    assert isinstance(tuned, FinetuneCommand)
    assert (tuned.names, tuned.seed, tuned.next_token_weight) == (["first", "second"], 0, 0.5)
    origin = Origin(format="sparsify", source="owner/name", part="layers.3", sha256="0" * 64)
    imported = typed(CONFIG.model_copy(update={"origin": origin}))
    assert isinstance(imported, ImportCommand)
    assert (imported.source, imported.part, imported.layer) == ("owner/name", "layers.3", 3)


def test_what_was_measured_of_experts_is_repeated_with_its_settings(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train(world.config(), world.data, world.store, world.language_model)
    run = Run.load("small", world.data)
    index_text = IndexConfig(text=world.text, tokens=320)
    build_index(run, index_text, world.language_model, world.store)
    influence = InfluenceConfig(per_interval=2, seed=3)
    steering = SteeringEvaluationConfig(
        experts=2, strengths=(1.5, 4.0), prompts=("the fox", "a 'red' dog"), samples=2, max_tokens=3, seed=5
    )
    build_influence(run, influence, world.language_model, world.store)
    evaluate_steering(run, steering, world.language_model, world.store)
    with Session(world.store) as session:
        typed_lines = [command_from(shlex.split(line)[1:]) for line in commands(session)]
    world.store.dispose()
    measured = next(it for it in typed_lines if isinstance(it, InfluenceCommand))
    assert part_of(InfluenceConfig, measured) == influence
    steered = next(it for it in typed_lines if isinstance(it, EvaluateSteeringCommand))
    assert part_of(SteeringEvaluationConfig, steered, prompts=tuple(steered.prompt or ())) == steering
