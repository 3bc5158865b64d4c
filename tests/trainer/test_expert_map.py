"""An expert taken apart: against the whole decomposition, and against what its weights were set to."""

from __future__ import annotations

import pytest
import torch

from tests.runs import World, small_world
from trainer import expert_map as module
from trainer.errors import UserError
from trainer.expert_map import CLOSED, expert_map
from trainer.layers.mxd import MxD
from trainer.run import Run
from trainer.train import train

EXPERT = 3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = small_world(tmp_path_factory.mktemp("maps"))
    for method in ("mxd", "low-rank-mxd", "transcoder"):
        train(made.config(method, method=method), made.data, made.store, made.language_model)
    return made


def mxd(world: World) -> tuple[Run, MxD]:
    run = Run.load("mxd", world.data)
    assert isinstance(run.layer, MxD)
    return run, run.layer


def test_directions_are_those_of_the_whole_decomposition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run, layer = mxd(world)
    with torch.no_grad():
        values, vectors = torch.linalg.svd(layer.expert_matrix(EXPERT))[1:]
        logits = world.language_model.logits_of(torch.stack([vectors[0], -vectors[0]]))
    for widest in (module.WIDEST, 1):  # exact, and randomised
        monkeypatch.setattr(module, "WIDEST", widest)
        found = expert_map(world.language_model, run, EXPERT)
        shares = values.square() / values.square().sum()
        assert [one.share for one in found.directions] == pytest.approx(shares[:3].tolist(), rel=1e-3)
        assert found.stable_rank == pytest.approx(1 / float(shares[0]), rel=1e-3)
        first = found.directions[0]
        ends = {tuple(token.id for token in end) for end in (first.one_end, first.other_end)}
        assert ends == {tuple(row.topk(6).indices.tolist()) for row in logits}, "whichever sign comes first"


def test_an_expert_opens_and_closes_what_its_scaling_says(world: World) -> None:
    run, layer = mxd(world)
    with torch.no_grad():
        layer.scaling_NO[EXPERT] = layer.scaling_NO.square().mean(dim=0).sqrt()
        layer.scaling_NO[EXPERT, 5] *= -40
        layer.scaling_NO[EXPERT, 2] = 0
    found = expert_map(world.language_model, run, EXPERT)
    assert found.opened[0].dimension == 5
    assert found.opened[0].scaling < 0 < CLOSED < 1 < found.opened[0].relative
    assert found.closed[0] == (2, 0.0, 0.0)
    assert found.closed_share == pytest.approx(1 / layer.config.output_width)


def test_an_expert_that_writes_nothing_has_no_direction(world: World) -> None:
    run, layer = mxd(world)
    with torch.no_grad():
        layer.scaling_NO[EXPERT] = 0
    found = expert_map(world.language_model, run, EXPERT)
    assert (found.stable_rank, found.directions, found.closed_share) == (0, (), 1)


def test_other_methods(world: World) -> None:
    low = expert_map(world.language_model, Run.load("low-rank-mxd", world.data), EXPERT)
    assert len(low.directions) == 3
    assert (low.opened, low.closed, low.closed_share) == ((), (), None)
    with pytest.raises(UserError, match="transcoder are not taken apart"):
        expert_map(world.language_model, Run.load("transcoder", world.data), EXPERT)
