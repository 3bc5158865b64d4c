"""Training on the pretend device: a language model in bfloat16, layers in float32."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.trainer.storage.run import Run
from mxd.trainer.training.layer_trainer import LayerTrainer
from tests.devices.plugin import SIZES, TEXT, mxd, train
from tests.devices.pretend_device import recording

METHODS = ("mxd", "transcoder", "skip-transcoder", "autoencoder", "batch-topk-mxd", "molt --rank 4")
OPTIONS = {
    "paper": "--mixing paper --k-spread 0.5 --dtype float32 --checkpoint-every 128 --matmul-precision high",
    "random": "--init random --load-balance-weight 0.1 --matmul-precision medium",
    "matryoshka-{layer}": "--min-k 1 --device sim:1 --layer 0,2",
    "cached": "--cache activations",
    "cached-again": "--cache activations --seed 1 --data-seed 0",
    "split-layers-{layer}": "--device auto-map --layer 0,2 --cache split-layers",
    "split-other-layer": "--device auto-map --layer 0",
    "sweep-{k}-{seed}": "--k 2,3 --seed 0,1",
}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Waits for the device in all training steps after which nothing is logged."""
    found: Counter[str] = Counter()
    take_step = LayerTrainer.train_step

    def recorded(trainer: LayerTrainer, batch: Any) -> Any:
        with recording() as waits:
            output = take_step(trainer, batch)
        if trainer.step % trainer.config.log_every and trainer.step < trainer.total_steps:
            found.update(waits, steps=1)
        return output

    monkeypatch.setattr(LayerTrainer, "train_step", recorded)
    return found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", [*METHODS, *OPTIONS])
def test_every_method_and_option_without_a_wait_between_logs(name: str, waits: Counter[str]) -> None:
    train(f"of-{name.split()[0]}", OPTIONS.get(name, f"--method {name}"))
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
