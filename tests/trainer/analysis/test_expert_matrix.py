"""``expert_map`` against a full SVD and against scalings set by hand."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.analysis import effects as module
from mxd.trainer.analysis.effects import SMALL_SCALING, expert_map
from mxd.trainer.analysis.results import OutputDimension
from mxd.trainer.errors import UserError
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.runs import World, small_world

EXPERT = 3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = small_world(tmp_path_factory.mktemp("maps"))
    for method in ("mxd", "low-rank-mxd", "hidden-mxd", "transcoder"):
        train_layer(made.config(method, method=method), made.data, made.database, made.language_model)
    return made


def mxd(world: World) -> tuple[Run, MxD]:
    run = Run.load("mxd", world.data)
    assert isinstance(run.layer, MxD)
    return run, run.layer


def test_directions_equal_those_of_a_full_svd(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run, layer = mxd(world)
    with torch.no_grad():
        values, vectors = torch.linalg.svd(layer.expert_matrix(EXPERT))[1:]
        logits = world.language_model.unembed(torch.stack([vectors[0], -vectors[0]]))
    for max_width in (module.MAX_EXACT_WIDTH, 1):  # exact, randomised
        monkeypatch.setattr(module, "MAX_EXACT_WIDTH", max_width)
        decomposed = expert_map(world.language_model, run, EXPERT)
        shares = values.square() / values.square().sum()
        assert [one.share for one in decomposed.directions] == pytest.approx(shares[:3].tolist(), rel=1e-3)
        assert decomposed.stable_rank == pytest.approx(1 / float(shares[0]), rel=1e-3)
        first = decomposed.directions[0]
        ends = {tuple(token.id for token in end) for end in (first.positive_tokens, first.negative_tokens)}
        assert ends == {tuple(row.topk(6).indices.tolist()) for row in logits}, "whichever sign comes first"


def test_largest_and_smallest_scalings(world: World) -> None:
    run, layer = mxd(world)
    with torch.no_grad():
        layer.scaling_NO[EXPERT] = layer.scaling_NO.square().mean(dim=0).sqrt()
        layer.scaling_NO[EXPERT, 5] *= -40
        layer.scaling_NO[EXPERT, 2] = 0
    decomposed = expert_map(world.language_model, run, EXPERT)
    assert decomposed.largest_scalings[0].dimension == 5
    assert decomposed.largest_scalings[0].scaling < 0 < SMALL_SCALING < 1 < decomposed.largest_scalings[0].relative
    assert decomposed.smallest_scalings[0] == OutputDimension(2, 0.0, 0.0)
    assert decomposed.small_scaling_share == pytest.approx(1 / layer.config.output_width)


def test_a_zero_expert_has_no_direction(world: World) -> None:
    run, layer = mxd(world)
    with torch.no_grad():
        layer.scaling_NO[EXPERT] = 0
    decomposed = expert_map(world.language_model, run, EXPERT)
    assert (decomposed.stable_rank, decomposed.directions, decomposed.small_scaling_share) == (0, (), 1)


def test_other_methods(world: World) -> None:
    low = expert_map(world.language_model, Run.load("low-rank-mxd", world.data), EXPERT)
    assert len(low.directions) == 3
    assert (low.largest_scalings, low.smallest_scalings, low.small_scaling_share) == ((), (), None)
    hidden = expert_map(world.language_model, Run.load("hidden-mxd", world.data), EXPERT)
    assert hidden.stable_rank >= 1
    assert hidden.small_scaling_share is None
    with pytest.raises(UserError, match="transcoder are vectors"):
        expert_map(world.language_model, Run.load("transcoder", world.data), EXPERT)
