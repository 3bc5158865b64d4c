"""The Python interface: train, index, expert, route, steer."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd import expert, index, route, steer, train
from mxd.trainer.analysis.expert import Expert
from mxd.trainer.config import Edit, OptimizerConfig, Sampling, SteeringConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.steering import NewToken
from mxd.trainer.storage.database.tables import ExampleRecord, ExpertRecord
from mxd.trainer.storage.run import Run
from tests.helpers.runs import World, small_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return small_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def run(world: World) -> Run:
    """A run that was trained and indexed from Python."""
    optimizer = OptimizerConfig(learning_rate=0.01, batch_tokens=64, buffer_tokens=512)
    fitted = train(
        world.language_model,
        1,
        world.text,
        1536,
        name="small",
        k=4,
        num_experts=40,
        optimizer=optimizer,
        data=world.data,
    )
    result = index(fitted, world.language_model, world.text.dataset, "2k", data=world.data)
    assert result.tokens % 16 == 0, "in sequences as long as those that it was fitted on"
    return fitted


def test_train_from_python_creates_a_normal_run(run: Run, world: World) -> None:
    assert run.folder == world.data / "runs" / "small"
    assert (run.layer_config.num_experts, run.layer_config.k) == (40, 4)
    assert run.config.tokens == 1536
    assert run.units
    with pytest.raises(UserError, match="Run 'small' already exists"):
        train(world.language_model, 1, world.text, 1536, name="small", data=world.data)


def test_expert_agrees_with_the_database(run: Run, world: World) -> None:
    with Session(world.database) as session:
        record = session.scalars(select(ExpertRecord).order_by(ExpertRecord.density.desc()).limit(1)).one()
        wanted = select(ExampleRecord).where(ExampleRecord.expert == record.expert, ExampleRecord.bin == 0)
        stored = session.scalars(wanted.order_by(ExampleRecord.rank).limit(3)).all()
        found = expert(run, record.expert, data=world.data, examples=3)
        assert (found.density, found.p99, found.entropy) == (record.density, record.p99, record.entropy)
        assert [it.coefficients[it.position] for it in found.examples] == [it.coefficient for it in stored]
        assert (
            found.examples[0].coefficients[found.examples[0].position] == found.max_activation == record.max_activation
        )
        assert [count for _, count in found.top_tokens] == [count for _, count in record.top_tokens]
    assert all(len(it.tokens) == len(it.coefficients) == 16 for it in found.examples)
    html = found._repr_html_()
    assert f"{found.max_activation:.3f}" in html
    assert "outline" in html


def test_an_unknown_expert(run: Run, world: World, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="experts 0 to 39"):
        expert(run, 40, data=world.data)
    with pytest.raises(NotFoundError, match="not indexed"):
        expert(run, 3, data=tmp_path)


def test_a_dead_expert_has_html(run: Run) -> None:
    dead = Expert("small", 7, None, 0.0, 0.0, 0.0, 0.0, 0.0, (), ())
    assert "no label" in dead._repr_html_()


def test_a_routing_lists_its_strongest_experts_first(run: Run, world: World) -> None:
    routing = route(world.language_model, run, "the <b>fox")
    shares: dict[int, float] = {}
    for token in routing.tokens[1:]:
        for it in token.experts:
            shares[it.expert] = shares.get(it.expert, 0.0) + it.share
    strongest = routing.strongest(3)
    assert [shares[it] for it in strongest] == sorted(shares.values(), reverse=True)[:3]
    html = routing._repr_html_()
    assert f"<b>{strongest[0]}</b>" in html
    assert "<b>fox" not in html
    assert "&lt;" in html


def test_a_generation_is_computed_once(run: Run, world: World) -> None:
    config = SteeringConfig(
        prompt="the old", edits=(Edit(expert=3, mode="set", strength=9.0),), sampling=Sampling(max_tokens=6, samples=2)
    )
    by_step = [step for step in steer(world.language_model, run, config) if isinstance(step, NewToken)]
    generation = steer(world.language_model, run, config)
    next(generation)
    for sample in (0, 1):
        mine = [it.text for it in by_step if (it.variant, it.sample) == ("steered", sample)]
        assert generation.text("steered", sample) == "".join(mine)
    assert len(generation.tokens("baseline")) == len(
        [it for it in by_step if (it.variant, it.sample) == ("baseline", 0)]
    )
    html = generation._repr_html_()
    assert html.count("<tr>") == 1 + 4
    assert "Δ log p" in html
