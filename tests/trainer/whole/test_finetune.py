"""Fine-tuning together: it nears the untouched language model, changes nothing else, and goes on bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.runs import World, small_world
from trainer.config import OptimizerConfig
from trainer.errors import UserError
from trainer.layers.registry import load_layer
from trainer.run import Run, checkpoints, runs_folder
from trainer.train import train
from trainer.whole import joined
from trainer.whole.config import FinetuneConfig
from trainer.whole.finetune import FinetuneResult, configs_of, finetune, fit_of
from trainer.whole.joined import Joined

NAMES = ("lower", "upper")
STEPS = 12


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An MxD of layer 1 and a transcoder of layer 2."""
    world = small_world(tmp_path_factory.mktemp("whole"))
    for name, changes in zip(NAMES, ({}, {"layer": 2, "method": "transcoder"}), strict=True):
        train(world.config(name, **changes), world.data, world.store, world.language_model)
    yield world
    world.store.dispose()


def runs_of(world: World) -> list[Run]:
    return [Run.load(name, world.data) for name in NAMES]


def config_of(world: World, prefix: str, **changes: Any) -> FinetuneConfig:
    settings: dict[str, Any] = {
        "name": f"{prefix}-{{run}}",
        "text": world.text,
        "tokens": STEPS * 64,
        "optimizer": OptimizerConfig(learning_rate=0.003, batch=64),
        "checkpoint_every": 128,
        "log_every": 2,
    }
    return FinetuneConfig(**(settings | changes))


def tune(world: World, prefix: str, **options: Any) -> FinetuneResult:
    changes = {key: options.pop(key) for key in list(options) if key in FinetuneConfig.model_fields}
    return finetune(
        runs_of(world), config_of(world, prefix, **changes), world.data, world.store, world.language_model, **options
    )


def weights(world: World, name: str) -> dict[str, torch.Tensor]:
    return {
        f"{run} {key}": value
        for run in NAMES
        for key, value in load_layer(Run.load(f"{name}{run}", world.data).weights_folder).state_dict().items()
    }


def alike(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class StopBefore:
    """Says stop when it is asked for the time after ``steps``."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_without_a_step_nothing_changes(fitted: World) -> None:
    result = tune(fitted, "none", should_stop=StopBefore(0))
    assert [(run.status, run.tokens) for run in result.runs] == [("stopped", 0)] * 2
    assert (result.kl_first, result.kl_last) == (None, None)
    assert alike(weights(fitted, "none-"), weights(fitted, ""))


def test_it_nears_the_untouched_language_model_and_changes_nothing_else(fitted: World) -> None:
    files = {path: path.read_bytes() for name in NAMES for path in runs_folder(fitted.data).glob(f"{name}/**/*.*")}
    original = {name: value.clone() for name, value in fitted.language_model.module.state_dict().items()}
    text = fitted.text.model_copy(update={"when_short": "repeat"})
    result = tune(fitted, "far", tokens=60 * 64, text=text)
    assert [(run.run, run.status) for run in result.runs] == [("far-lower", "finished"), ("far-upper", "finished")]
    assert result.kl_first is not None
    assert result.kl_last is not None
    assert result.kl_last < 0.7 * result.kl_first
    assert all(path.read_bytes() == content for path, content in files.items())
    assert alike(original, fitted.language_model.module.state_dict())
    changed = Run.load("far-lower", fitted.data)
    assert changed.config.began_as == ("lower", "upper")
    assert changed.config.origin is None
    assert "mxd finetune lower upper --name 'far-{run}' --resume" in changed.resume_command()
    before, after = weights(fitted, ""), weights(fitted, "far-")
    assert [name for name in before if torch.equal(before[name], after[name])] == []


@pytest.mark.parametrize("next_token_weight", [0.0, 0.5])
def test_gradients_are_those_of_the_whole_language_model(
    fitted: World, monkeypatch: pytest.MonkeyPatch, next_token_weight: float
) -> None:
    """Of every parameter of every layer, as the plain loss on a batch in one piece gives them."""
    monkeypatch.setattr(joined, "SEQUENCES_AT_ONCE", 2)
    runs, language_model = runs_of(fitted), fitted.language_model
    fits = [
        fit_of(run, one, language_model)
        for run, one in zip(runs, configs_of(runs, config_of(fitted, "g")), strict=True)
    ]
    ids_BT = torch.randint(1, 200, (5, 12), generator=torch.Generator().manual_seed(0))
    wanted_BTV = language_model.logits(ids_BT).log_softmax(-1)
    with language_model.replace({run.config.layer: run.layer for run in runs}):
        found_BTV = language_model.module(input_ids=ids_BT).logits.log_softmax(-1)
    kl = (wanted_BTV.exp() * (wanted_BTV - found_BTV)).sum(-1).mean()
    next_token = F.cross_entropy(found_BTV[:, :-1].flatten(0, 1), ids_BT[:, 1:].flatten())
    (kl + next_token_weight * next_token).backward()

    losses = Joined(language_model, fits, next_token_weight).step(ids_BT)
    assert losses.kl.item() == pytest.approx(kl.item(), rel=1e-4)
    assert losses.next_token.item() == pytest.approx(next_token.item(), rel=1e-4)
    for run, fit in zip(runs, fits, strict=True):
        wanted = dict(run.layer.named_parameters())
        for name, parameter in fit.layer.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name
            torch.testing.assert_close(parameter.grad, wanted[name].grad, rtol=1e-3, atol=1e-6)
        assert fit.tokens == ids_BT.numel()


@pytest.mark.parametrize("steps", [1, 5, 8])
def test_stopped_and_resumed_is_bit_for_bit_uninterrupted(fitted: World, steps: int) -> None:
    whole, parts = f"whole{steps}", f"parts{steps}"
    tune(fitted, whole)
    assert tune(fitted, parts, should_stop=StopBefore(steps)).runs[0].tokens == steps * 64
    assert tune(fitted, parts, resume="if-any").runs[1].status == "finished"
    assert alike(weights(fitted, f"{whole}-"), weights(fitted, f"{parts}-"))


@pytest.mark.parametrize("lost", [1, 2])
def test_killed_between_two_checkpoints_of_a_step_both_go_back(fitted: World, lost: int) -> None:
    whole, killed = f"all{lost}", f"killed{lost}"
    tune(fitted, whole)
    tune(fitted, killed, should_stop=StopBefore(7))
    for checkpoint in checkpoints(runs_folder(fitted.data) / f"{killed}-upper")[:lost]:
        shutil.rmtree(checkpoint)
    assert tune(fitted, killed, resume="if-any").runs[0].status == "finished"
    assert alike(weights(fitted, f"{whole}-"), weights(fitted, f"{killed}-"))


def test_a_damaged_checkpoint_of_one_is_not_mixed_with_the_others(fitted: World) -> None:
    tune(fitted, "damaged", should_stop=StopBefore(7))
    newest = checkpoints(runs_folder(fitted.data) / "damaged-upper")[0]
    (newest / "layer.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="A checkpoint of damaged-upper is damaged"):
        tune(fitted, "damaged", resume="if-any")


def test_what_cannot_be_fine_tuned_together(fitted: World) -> None:
    lower, upper = runs_of(fitted)
    elsewhere = Run(upper.folder, upper.config.model_copy(update={"language_model": "other"}))
    imported = Run(upper.folder, upper.config.model_copy(update={"method": "jumprelu-transcoder"}))
    config = config_of(fitted, "refused")
    for runs, words in (
        ([lower, lower], "lower and lower replace the same layer, 1"),
        ([lower, elsewhere], "several language models"),
        ([lower, imported], "upper is a jumprelu-transcoder"),
    ):
        with pytest.raises(UserError, match=words):
            finetune(runs, config, fitted.data, fitted.store, fitted.language_model)
    with pytest.raises(UserError, match=r"put \{run\} into --name"):
        tune(fitted, "same", name="same")
    assert not list(runs_folder(fitted.data).glob("refused*"))


def test_a_run_is_not_overwritten_nor_gone_on_with_alone(fitted: World) -> None:
    tune(fitted, "once", should_stop=StopBefore(1))
    with pytest.raises(UserError, match="once-lower exists"):
        tune(fitted, "once")
    with pytest.raises(UserError, match="another optimizer"):
        tune(fitted, "once", resume="if-any", optimizer=OptimizerConfig(learning_rate=0.1, batch=64))
    with pytest.raises(UserError, match="fine-tuned with other layers in place"):
        config = Run.load("once-lower", fitted.data).config
        train(config, fitted.data, fitted.store, fitted.language_model, resume="if-any")
    with pytest.raises(UserError, match="lower exists"):
        tune(fitted, "own", name="{run}")


def test_what_a_layer_grows_to_no_finite_number_fails_all(fitted: World) -> None:
    with pytest.raises(UserError, match="has diverged"):
        tune(fitted, "wild", optimizer=OptimizerConfig(learning_rate=1e30, warmup=0.0, batch=64))
    assert not Path(runs_folder(fitted.data) / "wild-lower" / "layer.safetensors").exists()
