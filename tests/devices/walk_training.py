"""Training on the pretend device: a language model in bfloat16, layers in float32."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.training import initialization
from mxd.trainer.training.layer_trainer import LayerTrainer
from tests.devices.plugin import SIZES, TEXT, mxd, train
from tests.devices.pretend_device import DeviceMismatchError, recording

METHODS = (
    "mxd",
    "transcoder",
    "skip-transcoder",
    "autoencoder",
    "batch-topk-mxd",
    "molt --rank 4",
)
OPTIONS = {
    "paper": "--mixing paper --k-spread 0.5",
    "random": "--init random --load-balance-weight 0.1",
    "matryoshka": "--min-k 1",
    "cached": "--cache activations",
    "cached-again": "--cache activations --seed 1 --data-seed 0",
    "checkpoints": "--checkpoint-every 128 --matmul-precision high",
    "medium": "--matmul-precision medium",
    "float32": "--dtype float32",
    "on-the-second": "--device sim:1",
    "split": "--device auto-map",
    "split-cached": "--device auto-map --cache split-activations",
    "split-layers-{layer}": "--device auto-map --layer 0,2 --cache split-layers",
    "split-other-layer": "--device auto-map --layer 0",
    "sweep-{k}-{seed}": "--k 2,3 --seed 0,1",
    "layers-{layer}": "--layer 0,2",
}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Waits for the device in all training steps after which nothing is logged."""
    found: Counter[str] = Counter()
    take_step = LayerTrainer.train_step

    def recorded(trainer: LayerTrainer, batch: Any) -> Any:
        with recording() as record:
            output = take_step(trainer, batch)
        if trainer.step % trainer.config.log_every and trainer.step < trainer.total_steps:
            found.update(record.waits, steps=1)
        return output

    monkeypatch.setattr(LayerTrainer, "train_step", recorded)
    return found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_without_a_wait_between_logs(method: str, waits: Counter[str]) -> None:
    train(f"method-{method.split()[0]}", f"--method {method}")
    assert waits == {"steps": 6}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_without_a_wait_between_logs(name: str, waits: Counter[str]) -> None:
    train(name, OPTIONS[name])
    assert waits.keys() == {"steps"}


def test_a_resumed_run_equals_an_uninterrupted_one(folder: Path) -> None:
    train("whole", "--checkpoint-every 256", tokens=1024)
    train("halves", "--checkpoint-every 256", tokens=1024)
    halves = folder / "data" / "runs" / "halves"
    (halves / "layer.safetensors").unlink()
    mxd("train --name halves --resume")
    weights = [Run.load(name, folder / "data").layer.state_dict() for name in ("whole", "halves")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.usefixtures("folder")
def test_a_plan() -> None:
    mxd(f"train lm {TEXT} {SIZES} --tokens 1k --k 4 --layer 1 --plan --device sim")


@pytest.mark.usefixtures("folder")
def test_a_layer_initialised_on_the_cpu_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that every GPU would show: the layer in main memory, the targets of its initialisation on the device."""

    def fit_scale(layer: SparseLayer, x_TI: Tensor, target_TO: Tensor) -> None:
        x_TI = x_TI.to(layer.cpu().table)
        error_TO = target_TO - layer.decode(layer.dense_output(x_TI), layer.route(x_TI))
        layer.get_parameter("output_bias").copy_(error_TO.mean(dim=0))

    monkeypatch.setattr(initialization, "_fit_scale", fit_scale)
    with pytest.raises(DeviceMismatchError, match="found at least two devices"):
        train("mutant")


@pytest.mark.usefixtures("folder")
def test_a_wait_in_a_step_is_counted(monkeypatch: pytest.MonkeyPatch, waits: Counter[str]) -> None:
    monkeypatch.setattr(
        "mxd.trainer.training.layer_trainer.active_counts",
        lambda routing, num_experts: torch.bincount(routing.indices_TK.reshape(-1), minlength=num_experts),
    )
    train("waiting")
    assert sorted((wait.split()[0], count) for wait, count in waits.items()) == [("bincount", 6), ("steps", 6)]
