"""What is planned is what is there: counts of every architecture; memory that fits, or a sentence on what would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.language_models import CONFIGS, saved_language_model, tiny_language_model
from trainer import fit_plan
from trainer.config import OptimizerConfig, TextConfig, TrainConfig
from trainer.errors import UserError
from trainer.fit_plan import Fitting, Setting, plan_fit, refuse_too_large
from trainer.fitting import layer_config_of
from trainer.layers.registry import build_layer
from trainer.rates import Product, Rates

CPU = Setting(torch.device("cpu"))


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that does a FLOP in a nanosecond and moves a byte in another."""
    monkeypatch.setattr(fit_plan, "measure", lambda products, _device: Rates(dict.fromkeys(products, 1e9), 1e9))


@pytest.fixture(params=sorted(CONFIGS))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def config(folder: Path, **changes: Any) -> TrainConfig:
    CONFIGS[changes.pop("family", "llama")].save_pretrained(folder)
    settings: dict[str, Any] = {
        "name": "small",
        "language_model": str(folder),
        "layer": 1,
        "text": TextConfig(text="none", context=16),
        "tokens": 4096,
        "num_experts": 40,
        "k": 4,
        "optimizer": OptimizerConfig(batch=64, window=512),
    }
    return TrainConfig(**(settings | changes))


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(fit_plan, "free_bytes", lambda _device: size)


def needed(configs: list[TrainConfig]) -> int:
    return sum(Fitting(configs, CPU).memory().values())


def test_counts_are_those_of_what_is_loaded(family: str, tmp_path: Path) -> None:
    asked = config(tmp_path, family=family, num_experts=None)
    found = plan_fit([asked], CPU)
    language_model = tiny_language_model(family)
    assert found.language_model_parameters == sum(it.numel() for it in language_model.module.parameters())
    matrices = [it.numel() for block in language_model.anatomy.blocks[:2] for it in block.parameters() if it.dim() > 1]
    assert found.language_model_used_parameters == sum(matrices)
    layer = build_layer(layer_config_of(asked, language_model.anatomy))
    assert found.layers[0].parameters == layer.num_parameters
    assert found.memory["language model"] == 4 * found.language_model_parameters
    assert found.memory["layers, gradients and moments"] == 16 * layer.num_parameters


def test_nothing_is_loaded(tmp_path: Path) -> None:
    asked = config(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"], "no weights, no tokenizer, no text"
    assert plan_fit([asked], CPU).tokens_per_second > 0


def test_runs_of_one_pass_share_the_language_model(tmp_path: Path) -> None:
    runs = [config(tmp_path, name=str(k), k=k, method=method) for k in (2, 8) for method in ("mxd", "transcoder")]
    alone, together = plan_fit(runs[:1], CPU), plan_fit(runs, CPU)
    forward = Fitting(runs, CPU).forward.flops
    assert together.flops_per_token - forward == sum(it.step_flops_per_token for it in together.layers)
    assert alone.flops_per_token < together.flops_per_token < 4 * alone.flops_per_token
    assert together.memory["language model"] == alone.memory["language model"]
    assert together.memory["windows of activations"] == alone.memory["windows of activations"]
    two = plan_fit([runs[0], runs[1].model_copy(update={"layer": 2})], CPU)
    assert two.memory["windows of activations"] == 2 * alone.memory["windows of activations"]


def test_time_is_arithmetic_and_traffic(tmp_path: Path) -> None:
    found = plan_fit([config(tmp_path)], CPU)
    assert found.tokens == 4096
    assert found.hours == pytest.approx(found.tokens / found.tokens_per_second / 3600)
    assert found.flops_per_token < 1e9 / found.tokens_per_second, "traffic comes on top"
    assert 0 < found.share_of_products < 1
    assert plan_fit([config(tmp_path, tokens=8192)], CPU).hours == pytest.approx(2 * found.hours)


def test_more_processes_share_a_step(tmp_path: Path) -> None:
    runs = [config(tmp_path, num_experts=4000)]
    one, two = plan_fit(runs, CPU), plan_fit(runs, CPU._replace(processes=2))
    assert two.memory["windows of activations"] * 2 == one.memory["windows of activations"]
    assert one.tokens_per_second < two.tokens_per_second < 2 * one.tokens_per_second, "each has its own optimiser"
    spread = plan_fit(runs, CPU._replace(processes=2, experts="spread"))
    assert spread.memory["layers, gradients and moments"] < 0.6 * two.memory["layers, gradients and moments"]
    with pytest.raises(UserError, match="share"):
        plan_fit(runs, CPU._replace(processes=3))


def test_what_does_not_fit_is_said_with_what_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [config(tmp_path, num_experts=100_000)]
    narrow = [runs[0].model_copy(update={"num_experts": 12_000})]
    least = [narrow[0].model_copy(update={"optimizer": OptimizerConfig(batch=64, window=64)})]
    free(monkeypatch, needed(least) - 512 * 32 * 4)
    with pytest.raises(UserError, match=r"^Fitting needs .* are free; --num-experts (\d+) would fit\.$") as refused:
        refuse_too_large(runs, CPU)
    said = int(str(refused.value).split("--num-experts ")[1].split()[0])
    assert 1000 < said < 12_000
    refuse_too_large([runs[0].model_copy(update={"num_experts": said})], CPU)
    assert plan_fit(runs, CPU).refusal is not None


def test_a_smaller_window_is_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = config(tmp_path, optimizer=OptimizerConfig(batch=64, window=65_536))
    halved = [wide.model_copy(update={"optimizer": OptimizerConfig(batch=64, window=32_768)})]
    free(monkeypatch, needed(halved))
    with pytest.raises(UserError, match="--window 32768 would fit"):
        refuse_too_large([wide], CPU)
    refuse_too_large(halved, CPU)


def test_fewer_runs_and_a_language_model_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    least = OptimizerConfig(batch=64, window=64)
    runs = [config(tmp_path, name=name, num_experts=4, optimizer=least) for name in "abcd"]
    free(monkeypatch, needed(runs[:2]))
    with pytest.raises(UserError, match="2 of these 4 runs at a time"):
        refuse_too_large(runs, CPU)
    free(monkeypatch, 10_000)
    with pytest.raises(UserError, match=r"language model alone .* --device spread"):
        refuse_too_large(runs, CPU)
    free(monkeypatch, needed(runs))
    refuse_too_large(runs, CPU)


def test_what_cannot_be_planned(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="layers 0 to 2"):
        plan_fit([config(tmp_path, layer=3)], CPU)
    with pytest.raises(UserError, match="no folder"):
        plan_fit([config(tmp_path, language_model=str(tmp_path / "missing"))], CPU)


def test_products_are_measured_at_the_shapes_of_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Product] = []

    def noted(products: dict[Product, None], _device: torch.device) -> Rates:
        asked.extend(products)
        return Rates(dict.fromkeys(products, 1e9), 1e9)

    monkeypatch.setattr(fit_plan, "measure", noted)
    plan_fit([config(tmp_path, name=name) for name in "ab"], CPU)
    assert asked == [
        Product(512, 16, 24, torch.float32),
        Product(64, 16, 40, torch.float32),
        Product(64, 16, 24, torch.float32),
    ]


def test_a_language_model_with_weights_is_planned_alike(tmp_path: Path) -> None:
    outlined = plan_fit([config(tmp_path / "outline")], CPU)
    whole = plan_fit([config(saved_language_model(tmp_path / "whole"))], CPU)
    assert outlined.layers == whole.layers
    assert outlined.language_model_parameters == whole.language_model_parameters
