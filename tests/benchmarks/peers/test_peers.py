"""The comparison with peers runs with us and plain transformers, which need no other environment."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Literal, get_args

import pytest
import torch

from benchmarks.peers import inputs
from benchmarks.peers.compare import bench_peers, held_out_nmse
from benchmarks.peers.inputs import WorkSizes
from benchmarks.peers.participants import Participant
from benchmarks.peers.scripts.protocol import Work
from benchmarks.trainer import generate
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import normalized_mse
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import saved_language_model
from tests.helpers.layers import random_layer, random_layer_of
from tests.helpers.runs import small_world

SIZES = WorkSizes(tokens=3, train_tokens=256, batch_tokens=128, num_experts=40, k=4)


def test_every_work_is_timed_and_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "ROUTED_TOKENS", 40)
    monkeypatch.setattr(inputs, "HELD_OUT_SEQUENCES", 2)
    world = small_world(tmp_path)
    model = saved_language_model(tmp_path / "model")
    run = Run.create(world.config(language_model=str(model)), world.data, world.language_model.tokenizer)
    random_layer(widths=(16, 20, 16), seed=0).save(run.folder)
    text = tmp_path / "text.jsonl.gz"
    text.write_bytes(gzip.compress((tmp_path / "text.jsonl").read_bytes()))
    found = bench_peers(
        Run.load(run.folder),
        world.language_model,
        text,
        works=get_args(Work),
        peers=["transformers"],
        sizes=SIZES,
        rounds=1,
        threads=1,
        environments=tmp_path / "environments",
    )
    points = {(point.work, point.participant): point for point in found.points}
    assert points.keys() == {
        *((work, "mxd") for work in get_args(Work)),
        *((work, "transformers") for work in ("pair", "pair-texts", "pairs", "pairs-texts", "text", "routing")),
    }
    assert all(point.wall_seconds > 0 and point.cpu_seconds > 0 for point in found.points)
    assert points["pair", "transformers"].quality == 2 * SIZES.tokens
    assert points["pairs", "transformers"].quality == 16 * SIZES.tokens == points["pairs", "mxd"].quality
    assert points["pair-texts", "mxd"].quality == 2 * SIZES.tokens == points["pair-texts", "transformers"].quality
    assert points["routing", "mxd"].quality > 0.99
    assert points["routing", "transformers"].quality > 0.99
    for work in ("transcoder", "mxd"):
        assert 0 < points[work, "mxd"].quality < 10  # a few steps on a model of random weights
    assert points["pair", "mxd"].wall_speedup == 1
    assert {"mxd-explorer", "transformers"} <= found.versions.keys()
    world.database.dispose()


@pytest.mark.parametrize("method", ["transcoder", "autoencoder"])
def test_all_layers_are_scored_by_one_formula(method: Literal["transcoder", "autoencoder"]) -> None:
    layer = random_layer_of(method)
    x_TI, y_TO = torch.randn(50, layer.config.input_width), torch.randn(50, layer.config.output_width)
    state = layer.state_dict()
    tensors = {
        "W_enc": state["gate.weight"],
        "b_enc": state["gate.bias"],
        "W_dec": state["direction_NO"],
        "b_dec": state["output_bias"],
    }
    if method == "autoencoder":
        tensors["b_enc"] = tensors["b_enc"] - tensors["W_enc"] @ tensors["b_dec"]
    with torch.no_grad():
        expected = float(normalized_mse(layer(x_TI).output_TO, y_TO))
    assert held_out_nmse(tensors, x_TI, y_TO, layer.config.k) == pytest.approx(expected, rel=1e-5)


def test_a_participant_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="The script of transformers failed"):
        Participant("transformers", tmp_path, tmp_path, threads=1)
