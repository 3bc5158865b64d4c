"""Joint fine-tuning: KL to the original model, gradients, resuming, errors."""

import shutil
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from mxd.trainer.config.training import FinetuneConfig, OptimizerConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import MxD, spatial_median
from mxd.trainer.storage.run import Run, checkpoints, runs_folder
from mxd.trainer.training import finetune as joined
from mxd.trainer.training.finetune import FinetuneResult, JointTrainer, finetune, new_run_configs, trainer_from_run
from mxd.trainer.utils.distributed import SINGLE_PROCESS
from tests.helpers.runs import World, stop_after, train_layer

NAMES = ("lower", "upper")
STEPS = 12


@pytest.fixture(scope="module")
def trained(shared: World) -> World:
    """An MxD of layer 1 and a transcoder of layer 2."""
    for name, changes in zip(NAMES, ({}, {"layer": 2, "method": "transcoder"}), strict=True):
        shared.train(name, **changes)
    return shared


def runs_of(world: World) -> list[Run]:
    return [Run.load(name, world.data) for name in NAMES]


def config_of(world: World, prefix: str, **changes: Any) -> FinetuneConfig:
    settings: dict[str, Any] = {
        "name": f"{prefix}-{{run}}",
        "text": world.text,
        "tokens": STEPS * 64,
        "optimizer": OptimizerConfig(learning_rate=0.003, batch_tokens=64),
        "checkpoint_every": 128,
        "log_every": 2,
    }
    return FinetuneConfig(**(settings | changes))


def tune(world: World, prefix: str, runs: Sequence[Run] = (), **options: Any) -> FinetuneResult:
    changes = {key: options.pop(key) for key in list(options) if key in FinetuneConfig.model_fields}
    config, inputs = config_of(world, prefix, **changes), (world.data, world.database, world.language_model)
    return finetune(list(runs) or runs_of(world), config, *inputs, **options)


def weights(world: World, name: str) -> dict[str, torch.Tensor]:
    return {f"{run} {key}": value for run in NAMES for key, value in world.weights(f"{name}{run}").items()}


def alike(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_fine_tuning_lowers_the_kl_and_changes_only_the_new_layers(trained: World) -> None:
    files = {path: path.read_bytes() for name in NAMES for path in runs_folder(trained.data).glob(f"{name}/**/*.*")}
    original = {name: value.clone() for name, value in trained.language_model.module.state_dict().items()}
    text = trained.text.model_copy(update={"on_short_text": "repeat"})
    result = tune(trained, "far", tokens=60 * 64, text=text)
    assert [(run.run, run.status) for run in result.runs] == [("far-lower", "finished"), ("far-upper", "finished")]
    assert result.kl_first is not None and result.kl_last is not None
    assert result.kl_last < 0.7 * result.kl_first
    assert all(path.read_bytes() == content for path, content in files.items())
    assert alike(original, trained.language_model.module.state_dict())
    changed = Run.load("far-lower", trained.data)
    assert changed.config.parents == ("lower", "upper")
    assert changed.config.origin is None
    assert 'mxd finetune lower upper --name "far-{run}" --resume' in changed.resume_command()
    before, after = weights(trained, ""), weights(trained, "far-")
    assert not [name for name in before if torch.equal(before[name], after[name])]


def test_the_centre_is_the_tracked_median_of_the_mixing(trained: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored centre is that of the mixing on all tokens of the steps, whatever the passes are."""
    monkeypatch.setattr(joined, "MICROBATCH_SEQUENCES", 2)
    runs, language_model = runs_of(trained)[:1], trained.language_model
    trainer = trainer_from_run(runs[0], new_run_configs(runs, config_of(trained, "c"))[0], language_model)
    layer, joint = trainer.layer, JointTrainer(language_model, [trainer])
    assert isinstance(layer, MxD)
    expected_M = layer.mixing_centre_M.clone()
    for step in range(1, 5):
        ids_BT = torch.randint(1, 200, (6, 12), generator=torch.Generator().manual_seed(step))
        with torch.no_grad():
            mixing_TM = layer.mixing(layer.route(language_model.mlp_inputs([1], ids_BT)[1]))
        expected_M += (spatial_median(mixing_TM, expected_M) - expected_M) / step
        joint.train_step(ids_BT)
        torch.testing.assert_close(layer.mixing_centre_M, expected_M)
    assert layer.average is None


def test_gradients_equal_those_of_the_plain_loss(trained: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of all parameters equal those of the loss of passes that subtract their own centre."""
    monkeypatch.setattr(joined, "MICROBATCH_SEQUENCES", 2)
    runs, language_model = runs_of(trained), trained.language_model
    trainers = [
        trainer_from_run(run, one, language_model)
        for run, one in zip(runs, new_run_configs(runs, config_of(trained, "g")), strict=True)
    ]
    ids_BT = torch.randint(1, 200, (5, 12), generator=torch.Generator().manual_seed(0))
    wanted_BTV = language_model.logits(ids_BT).log_softmax(-1)
    lower = runs[0].layer
    assert isinstance(lower, MxD)
    lower.average = SINGLE_PROCESS.average
    with language_model.replace({run.config.layer: run.layer for run in runs}):
        found_BTV = torch.cat([language_model.module(input_ids=part).logits for part in ids_BT.split(2)])
    found_BTV = found_BTV.log_softmax(-1)
    kl = (wanted_BTV.exp() * (wanted_BTV - found_BTV)).sum(-1).mean()
    kl.backward()

    loss = JointTrainer(language_model, trainers).train_step(ids_BT)
    assert loss.item() == pytest.approx(kl.item(), rel=1e-4)
    for run, trainer in zip(runs, trainers, strict=True):
        expected = dict(run.layer.named_parameters())
        for name, parameter in trainer.layer.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name
            torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-3, atol=1e-6)
        assert trainer.tokens == ids_BT.numel()


def test_resuming_is_bit_identical(trained: World) -> None:
    """Also from the newest common checkpoint, if one run has lost some."""
    tune(trained, "uncut")
    whole = weights(trained, "uncut-")
    for steps, lost in ((1, 0), (5, 0), (8, 0), (7, 1), (7, 2)):
        parts = f"parts{steps}-{lost}"
        assert tune(trained, parts, callbacks=stop_after(steps + 1)).runs[0].tokens == steps * 64
        for checkpoint in checkpoints(runs_folder(trained.data) / f"{parts}-upper")[:lost]:
            shutil.rmtree(checkpoint)
        assert {run.status for run in tune(trained, parts, resume="if-any").runs} == {"finished"}
        assert alike(whole, weights(trained, f"{parts}-")), parts


def test_a_damaged_checkpoint_of_one_run_is_an_error(trained: World) -> None:
    tune(trained, "damaged", callbacks=stop_after(8))
    newest = checkpoints(runs_folder(trained.data) / "damaged-upper")[0]
    (newest / "layer.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="A checkpoint of 'damaged-upper' is damaged"):
        tune(trained, "damaged", resume="if-any")


def test_incompatible_runs_are_rejected(trained: World) -> None:
    lower, upper = runs_of(trained)
    elsewhere = Run(upper.folder, upper.config.model_copy(update={"language_model": "other"}))
    imported = Run(upper.folder, upper.config.model_copy(update={"method": "jumprelu-transcoder"}))
    for runs, message in (
        ([lower, lower], "A run is listed twice"),
        ([lower, elsewhere], "different language models"),
        ([lower, imported], "'upper' is an imported jumprelu-transcoder"),
    ):
        with pytest.raises(UserError, match=message):
            tune(trained, "refused", runs)
    with pytest.raises(UserError, match=r"Use \{run\} in --name"):
        tune(trained, "same", name="same")
    with pytest.raises(UserError, match="Invalid run name"):
        tune(trained, "outside", name="../{run}")
    assert not list(runs_folder(trained.data).glob("refused*"))


def test_a_fine_tuned_run_is_neither_overwritten_nor_resumed_alone(trained: World) -> None:
    tune(trained, "once", callbacks=stop_after(2))
    with pytest.raises(UserError, match="'once-lower' already exists"):
        tune(trained, "once")
    with pytest.raises(UserError, match="another optimizer"):
        tune(trained, "once", resume="if-any", optimizer=OptimizerConfig(learning_rate=0.1, batch_tokens=64))
    with pytest.raises(UserError, match="fine-tuned jointly with other layers"):
        config = Run.load("once-lower", trained.data).config
        train_layer(config, trained.data, trained.database, trained.language_model, resume="if-any")
    with pytest.raises(UserError, match="lower' already exists"):
        tune(trained, "own", name="{run}")


def test_passes_are_as_large_as_the_memory_allows(trained: World, monkeypatch: pytest.MonkeyPatch) -> None:
    length, vocabulary = trained.text.context_length, trained.language_model.config.vocab_size
    bytes_each = 6 * 4 * length * vocabulary
    sizes: list[int] = []
    residual = LanguageModel.residual

    def recorded(language_model: LanguageModel, ids_BT: torch.Tensor) -> torch.Tensor:
        sizes.append(len(ids_BT))
        return residual(language_model, ids_BT)

    monkeypatch.setattr(LanguageModel, "residual", recorded)
    runs, optimizer = runs_of(trained)[1:], OptimizerConfig(learning_rate=0.003, batch_tokens=128)
    tune(trained, "whole", runs, optimizer=optimizer)
    whole, sizes[:] = max(sizes), []
    monkeypatch.setattr(joined, "free_bytes", lambda _device: 2 * bytes_each)
    tune(trained, "single", runs, optimizer=optimizer)
    assert whole > 1
    assert set(sizes) == {1}
    # With a transcoder, because centred mixing subtracts the own centre of each pass.
    first, second = (Run.load(f"{prefix}-upper", trained.data).layer.state_dict() for prefix in ("whole", "single"))
    assert not alike(first, Run.load("upper", trained.data).layer.state_dict())
    assert all(torch.allclose(first[name], second[name], rtol=1e-3, atol=1e-5) for name in first)
    monkeypatch.setattr(joined, "free_bytes", lambda _device: 2 * bytes_each - 1)
    with pytest.raises(UserError, match=f"for sequences of {length} tokens.* Lower --context-length"):
        tune(trained, "lacking")
