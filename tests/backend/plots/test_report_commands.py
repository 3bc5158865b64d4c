"""Figures show what the database says, the report names the commands that repeat it, and names are no markup."""

import json
import shlex
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.cli.commands.evaluate import AblateCommand, EvaluateSteeringCommand
from mxd.backend.cli.commands.share import ImportCommand
from mxd.backend.cli.commands.train import FinetuneCommand, TrainCommand
from mxd.backend.cli.parser import command_from
from mxd.backend.plots import figures
from mxd.backend.queries.commands import commands, fit, train_again_command
from mxd.backend.queries.runs import find_run
from mxd.trainer.analysis.ablation import build_ablations
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config import (
    AblationConfig,
    IndexConfig,
    OptimizerConfig,
    Origin,
    RegularizationConfig,
    SteeringEvaluationConfig,
    TextConfig,
    TrainConfig,
)
from mxd.trainer.config.base import RETIRED
from mxd.trainer.evaluation.steering import evaluate_steering
from mxd.trainer.storage.database.tables import MeasurementRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.databases import ACTIVE, steering_strength
from tests.helpers.runs import World, small_world

CONFIG = TrainConfig(
    name="a-run", language_model="some folder/model", language_model_dtype="bfloat16", layer=3,
    text=TextConfig(dataset="my text.jsonl", column="body", context_length=64, on_short_text="repeat"),
    tokens=4096, method="molt", num_experts=512, k=8, rank=5, init="random", seed=1, data_seed=0,
    optimizer=OptimizerConfig(
        learning_rate=2e-3, warmup_ratio=0.1, decay_ratio=0.2, batch_tokens=512, buffer_tokens=2048
    ),
    regularization=RegularizationConfig(k_spread=0.5, load_balance_weight=0.01),
)  # fmt: skip


def typed(config: TrainConfig) -> Any:
    # Records of earlier versions have a gate.
    return command_from(shlex.split(fit({**config.model_dump(mode="json"), "gate": RETIRED["gate"]}))[1:])


@pytest.mark.parametrize("changed", [{}, {"num_experts": None, "data_seed": None}, {"min_k": 2, "rank": None}])
def test_the_training_command_has_all_settings(changed: dict[str, Any], tmp_path: Path) -> None:
    config = CONFIG.model_copy(update=changed)
    command = typed(config)
    assert isinstance(command, TrainCommand)
    assert command.configs(tmp_path) == [config]


def test_the_command_that_trains_again_states_only_what_differs_from_the_defaults(tmp_path: Path) -> None:
    again = CONFIG.model_copy(update={"name": "a-run-again", "seed": 101})
    command = train_again_command(CONFIG.model_dump(mode="json"))
    assert command is not None
    typed_again = command_from(shlex.split(command)[1:])
    assert isinstance(typed_again, TrainCommand)
    assert typed_again.configs(tmp_path) == [again]
    plain = TrainConfig(
        name="b", language_model="lm", layer=0, text=TextConfig(dataset="t.txt"), tokens=1_000_000, num_experts=64
    )
    assert train_again_command(plain.model_dump(mode="json")) == (
        "mxd train lm --name b-again --layer 0 --dataset t.txt --tokens 1000000 --num-experts 64 "
        "--learning-rate 0.003 --batch-tokens 512 --seed 100"
    )
    assert train_again_command(CONFIG.model_copy(update={"parents": ("a", "b")}).model_dump(mode="json")) is None


def test_fine_tuned_and_imported_runs_have_their_own_commands() -> None:
    tuned = typed(CONFIG.model_copy(update={"parents": ("first", "second"), "next_token_weight": 0.5}))
    assert isinstance(tuned, FinetuneCommand)
    assert (tuned.names, tuned.flags["seed"], tuned.flags["next_token_weight"]) == (["first", "second"], "0", "0.5")
    origin = Origin(format="sparsify", source="owner/name", part="layers.3", sha256="0" * 64)
    imported = typed(CONFIG.model_copy(update={"origin": origin}))
    assert isinstance(imported, ImportCommand)
    assert [imported.flags[name] for name in ("source", "part", "layer")] == ["owner/name", "layers.3", "3"]


def commands_of(world: World, kind: type[Any]) -> list[Any]:
    """Settings of the commands of one kind, as the command line reads them."""
    with Session(world.database) as session:
        typed_lines = [command_from(shlex.split(line)[1:]) for line in commands(session)]
    return [line.config for line in typed_lines if isinstance(line, kind)]


def test_commands_of_expert_measurements_have_their_settings(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train_layer(world.config(), world.data, world.database, world.language_model)
    run = Run.load("small", world.data)
    index_text = IndexConfig(text=world.text, tokens=320)
    build_index(run, index_text, world.language_model, world.database)
    influence = AblationConfig(examples_per_bin=2, seed=3)
    steering = SteeringEvaluationConfig(
        experts=2, strengths=(1.5, 4.0), prompts=("the fox", "a 'red' dog"), samples=2, max_tokens=3, seed=5
    )
    build_ablations(run, influence, world.language_model, world.database)
    assert commands_of(world, AblateCommand) == [influence]
    first, second = (influence.model_copy(update={"experts": (expert,)}) for expert in sorted(run.units)[:2])
    build_ablations(run, first, world.language_model, world.database)
    evaluate_steering(run, steering, world.language_model, world.database)
    assert commands_of(world, AblateCommand) == [influence]  # the other experts keep their measurements
    assert commands_of(world, EvaluateSteeringCommand) == [steering]
    build_index(run, index_text, world.language_model, world.database)
    for chosen in (first, second):
        build_ablations(run, chosen, world.language_model, world.database)
    both = influence.model_copy(update={"experts": (*first.experts, *second.experts)})
    assert commands_of(world, AblateCommand) == [both]
    world.database.dispose()


def figure(client: TestClient, name: str) -> dict[str, Any]:
    answer = client.get(f"/api/figures/{name}", params={"run": "first"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_figures_are_valid_and_without_colours(client: TestClient) -> None:
    training, scatter, histogram, steering = (
        figure(client, name) for name in ("training", "density-activation", "density-histogram", "steering")
    )
    for found in (training, scatter, histogram):
        go.Figure(data=found["data"], layout=found["layout"])
        assert "color" not in json.dumps(found)
        assert "template" not in found["layout"]
        assert all("role" in trace["meta"] for trace in found["data"])
    assert [trace["meta"]["role"] for trace in training["data"]] == ["normalized_mse", "dead_share", "l0"]
    assert training["data"][0]["y"] == [0.2, 0.1, pytest.approx(10 / 150)]
    assert training["layout"]["yaxis"]["type"] == "log"
    assert sum(histogram["data"][0]["y"]) == ACTIVE
    assert histogram["data"][0]["customdata"][-1][1] == 100, "densities are in percent"
    assert len(histogram["layout"]["shapes"]) == 1, "K/N is marked"
    assert steering["total"] == 0
    assert "mxd evaluate-steering first" in steering["title"]


def test_a_scatter_plot_is_sampled_and_follows_labels(
    own: Engine, own_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = figure(own_client, "density-activation")
    own_client.patch("/api/runs/first/experts/3", json={"label": "foxes"})
    after = figure(own_client, "density-activation")
    assert [3, None] in before["data"][0]["customdata"]
    assert [3, "foxes"] in after["data"][0]["customdata"]
    assert (after["drawn"], after["total"]) == (ACTIVE, ACTIVE)
    monkeypatch.setattr(figures, "MAX_POINTS", 30)
    with Session(own) as session:
        part, again = (figures.density_activation(session, find_run(session, "first")) for _ in range(2))
    assert (part.drawn, part.total) == (30, ACTIVE)
    assert part == again


def test_curves_are_medians_over_experts_and_start_at_the_baseline(own: Engine, own_client: TestClient) -> None:
    def note() -> str:
        chapters = own_client.get("/api/runs/first/report").json()["chapters"]
        (section,) = next(one["sections"] for one in chapters if one["key"] == "steering")
        return str(section["figure"]["note"])

    with Session(own) as session, session.begin():
        for expert, kl in ((3, 0.1), (4, 0.2), (5, 0.9)):
            session.add(steering_strength(1, expert, "none", 0.0, 0.0))
            kinds = ("expert", "random_expert", "random_direction")
            session.add_all(steering_strength(1, expert, kind, 2.0, kl) for kind in kinds)
    found = figure(own_client, "steering")
    assert (found["drawn"], len(found["data"])) == (3, 12)
    names = [trace["name"] for trace in found["data"][:3]]
    assert names == ["Expert", "Random expert of its density", "Random direction"]
    assert (found["data"][0]["x"], found["data"][0]["y"]) == ([0.0, 2.0], [0.0, 0.2])
    assert note() == "3 experts"
    with Session(own) as session, session.begin():
        settings = SteeringEvaluationConfig().model_dump(mode="json")
        session.add(MeasurementRecord(run_id=1, command="evaluate-steering", settings=settings))
    assert note() == "3 experts, 3 samples of 24 tokens for each of 3 prompts per strength"
