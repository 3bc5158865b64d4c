"""Plans: sizes against real layers, measured rates, memory and expected time."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.trainer.config.layer import Encoder, Method, method_traits, methods
from mxd.trainer.config.presets import FOLDER, Preset
from mxd.trainer.config.training import OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers import ops, triton_ops
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.training import plan as planning
from mxd.trainer.training import rates
from mxd.trainer.training.layer_trainer import build_layer_config
from mxd.trainer.training.plan import (
    PlannedTraining,
    TrainSetup,
    can_spread_runs,
    check_fits_memory,
    choose_sharding,
    plan_training,
    products_of,
    recommend,
)
from mxd.trainer.training.precision import in_bfloat16
from mxd.trainer.training.rates import DeviceRates, Grid, LayerSizes, Links, Product, free_bytes, measure
from tests.helpers.runs import CONFIGS, layer_config, saved_language_model, tiny_language_model


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", methods("core", "experimental"))
def test_parameter_count_of_every_method(method: Method, encoder: Encoder) -> None:
    config = layer_config(method, encoder=encoder, mixing=method_traits(method).mixing)
    sizes, layer = LayerSizes.from_config(config), build_layer(config)
    assert sizes.parameters == layer.num_parameters
    if layer.expert_tables:  # otherwise its experts cannot be spread
        assert sizes.table_parameters == sum(layer.get_parameter(name).numel() for name in layer.expert_tables)


def test_flops_of_a_gpt2_step() -> None:
    """232.6 GFLOPs for 4,096 tokens, N = 21,490, K = 32: 96.6 for encoder and decoder, 135.2 for the gate."""
    step = 4096 * LayerSizes(768, 3072, 768, 21_490, 32, 1).step_flops_per_token
    assert step == pytest.approx(232.6e9, rel=5e-3)


DEVICE = torch.device("cpu")


def test_the_rate_is_flops_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(float(second) for second in range(1000))  # each call advances the clock by a second
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    product = Product(8, 4, 6, torch.float32)
    assert measure([product], DEVICE).products[product] == product.flops == 2 * 8 * 4 * 6


def test_a_cgroup_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits = [tmp_path / name for name in ("most", "used")]
    for path, size in zip(limits, (1000, 400), strict=True):
        path.write_text(f"{size}\n")
    monkeypatch.setattr(rates, "_CGROUP_FILES", tuple(limits))
    assert free_bytes(DEVICE) == 600
    limits[0].write_text("max\n")
    assert free_bytes(DEVICE) != 600


CPU = TrainSetup(torch.device("cpu"))


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a device with 1 GFLOP/s and 1 GB/s."""
    monkeypatch.setattr(planning, "measure", lambda products, _device: DeviceRates(dict.fromkeys(products, 1e9), 1e9))


def config(folder: Path, **changes: Any) -> TrainConfig:
    CONFIGS[changes.pop("family", "llama")].save_pretrained(folder)
    settings: dict[str, Any] = {
        "name": "small",
        "language_model": str(folder),
        "layer": 1,
        "text": TextConfig(dataset="none", context_length=16),
        "tokens": 4096,
        "num_experts": 40,
        "k": 4,
        "optimizer": OptimizerConfig(batch_tokens=64, buffer_tokens=512),
    }
    return TrainConfig(**(settings | changes))


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(planning, "free_bytes", lambda _device: size)


def required_bytes(configs: list[TrainConfig]) -> int:
    return sum(PlannedTraining(configs, CPU).memory().values())


@pytest.mark.parametrize("family", CONFIGS)
def test_counts_equal_those_of_the_loaded_model(family: str, tmp_path: Path) -> None:
    requested = config(tmp_path, family=family, num_experts=None)
    result = plan_training([requested], CPU)
    language_model = tiny_language_model(family)
    assert result.language_model_parameters == sum(it.numel() for it in language_model.module.parameters())
    used = language_model.architecture.blocks[:2].parameters()
    assert result.language_model_used_parameters == sum(it.numel() for it in used if it.dim() > 1)
    layer = build_layer(build_layer_config(requested, language_model.architecture))
    assert result.layers[0].parameters == layer.num_parameters
    folder = str(saved_language_model(tmp_path / "saved", family))
    loaded = LanguageModel.load(folder, "cpu", torch.float32, last_layer=requested.layer)
    assert result.memory["model weights"] == loaded.num_bytes
    assert result.memory["layers, gradients and moments"] == 16 * layer.num_parameters


def test_processes_share_the_weights_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = [config(tmp_path)]

    def weights(**setup: Any) -> int:
        return PlannedTraining(requested, CPU._replace(processes=4, **setup)).memory()["model weights"]

    assert weights(sharding="tp") == weights() // 4
    assert weights(sharding="tp", nodes=2) == weights() // 2
    assert weights(sharding="tp") < weights(sharding="fsdp")
    setup = CPU._replace(processes=2)
    assert choose_sharding(requested, setup) is None
    free(monkeypatch, 1)
    assert choose_sharding(requested, setup) == "fsdp"
    assert choose_sharding(requested, CPU) is None


def test_runs_on_one_pass_share_the_model(tmp_path: Path) -> None:
    runs = [config(tmp_path, name=str(k), k=k, method=method) for k in (2, 8) for method in ("mxd", "transcoder")]
    alone, together = plan_training(runs[:1], CPU), plan_training(runs, CPU)
    forward = PlannedTraining(runs, CPU).forward.flops
    assert together.flops_per_token - forward == sum(it.step_flops_per_token for it in together.layers)
    assert alone.flops_per_token < together.flops_per_token < 4 * alone.flops_per_token
    assert together.memory["model weights"] == alone.memory["model weights"]
    assert together.memory["activation buffers"] == alone.memory["activation buffers"]
    two = plan_training([runs[0], runs[1].model_copy(update={"layer": 2})], CPU)
    assert two.memory["activation buffers"] == 2 * alone.memory["activation buffers"]


def test_processes_share_a_step(tmp_path: Path) -> None:
    runs = [config(tmp_path, num_experts=4000)]
    one, two = plan_training(runs, CPU), plan_training(runs, CPU._replace(processes=2))
    assert two.memory["activation buffers"] * 2 == one.memory["activation buffers"]
    assert one.tokens_per_second < two.tokens_per_second < 2 * one.tokens_per_second, "each has its own optimiser"
    spread = plan_training(runs, CPU._replace(processes=2, parallel="experts"))
    assert spread.memory["layers, gradients and moments"] < 0.6 * two.memory["layers, gradients and moments"]
    with pytest.raises(UserError, match="divided evenly"):
        plan_training(runs, CPU._replace(processes=3))


def test_spread_runs_need_the_memory_of_the_busiest_process(tmp_path: Path) -> None:
    runs = [config(tmp_path, num_experts=count) for count in (500, 4000, 900, 1000)]
    spread = PlannedTraining(runs, CPU._replace(processes=2, parallel="runs"))
    alone = PlannedTraining(runs[1:2], CPU)
    layers = "layers, gradients and moments"
    assert spread.memory()[layers] == alone.memory()[layers]
    assert products_of(spread).keys() == {"model", "gate 1", "dense 1"}
    assert products_of(spread)["gate 1"] == products_of(alone)["gate 0"], "whole steps"
    assert spread.communication().keys() == {"gathering activations"}
    assert can_spread_runs(runs, CPU._replace(processes=4))
    assert not any(can_spread_runs(runs, CPU._replace(processes=count)) for count in (1, 8))


def test_the_error_suggests_a_number_of_experts_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [config(tmp_path, num_experts=100_000)]
    narrow = [runs[0].model_copy(update={"num_experts": 12_000})]
    least = [narrow[0].model_copy(update={"optimizer": OptimizerConfig(batch_tokens=64, buffer_tokens=64)})]
    free(monkeypatch, required_bytes(least) - 512 * 32 * 4)
    with pytest.raises(UserError, match=r"^Training needs .* are free\. --num-experts (\d+) would fit\.$") as refused:
        check_fits_memory(runs, CPU)
    suggested = int(str(refused.value).split("--num-experts ")[1].split()[0])
    assert 1000 < suggested < 12_000
    check_fits_memory([runs[0].model_copy(update={"num_experts": suggested})], CPU)
    assert plan_training(runs, CPU).refusal is not None


def test_a_smaller_buffer_is_suggested_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = config(tmp_path, optimizer=OptimizerConfig(batch_tokens=64, buffer_tokens=65_536))
    halved = [wide.model_copy(update={"optimizer": OptimizerConfig(batch_tokens=64, buffer_tokens=32_768)})]
    free(monkeypatch, required_bytes(halved))
    with pytest.raises(UserError, match="--buffer-tokens 32768 would fit"):
        check_fits_memory([wide], CPU)
    check_fits_memory(halved, CPU)


def test_fewer_runs_or_auto_map_are_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    least = OptimizerConfig(batch_tokens=64, buffer_tokens=64)
    runs = [config(tmp_path, name=name, num_experts=4, optimizer=least) for name in "abcd"]
    free(monkeypatch, required_bytes(runs[:2]))
    with pytest.raises(UserError, match="2 of these 4 runs at a time"):
        check_fits_memory(runs, CPU)
    free(monkeypatch, 10_000)
    with pytest.raises(UserError, match=r"model alone .* --device=auto-map"):
        check_fits_memory(runs, CPU)
    free(monkeypatch, required_bytes(runs))
    check_fits_memory(runs, CPU)


def test_a_step_on_a_gpu_holds_the_scores_of_all_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2's layer: a CPU holds 4M scores at a time, a GPU those of all 4,096 tokens."""
    monkeypatch.setattr(ops, "compiled_ops", lambda _device: triton_ops)
    runs, sizes = [config(tmp_path)], LayerSizes(768, 3072, 768, 21_490, 32, readers=1)
    on_gpu, on_cpu = (PlannedTraining(runs, TrainSetup(torch.device(device))) for device in ("cuda", "cpu"))
    extra = on_gpu.step_bytes(sizes, 4096) - on_cpu.step_bytes(sizes, 4096)
    assert extra == 4 * 2 * 21_490 * (4096 - (1 << 22) // 21_490)


H100 = TrainSetup.from_device_name("h100")


def preset(name: str, layer: int = 16, **optimizer: Any) -> TrainConfig:
    planned = TrainConfig(
        name="planned",
        language_model=Preset.read(FOLDER / f"{name}.toml").language_model,
        layer=layer,
        text=TextConfig(dataset="none"),
        tokens=10**7,
        num_experts=65_536,
        k=64,
        optimizer=OptimizerConfig(**{"batch_tokens": 4096} | optimizer),
    )
    return in_bfloat16(planned)


def test_a_preset_is_planned_without_network_for_a_device_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "load_outline", lambda source: pytest.fail(f"{source} was asked for"))
    result = plan_training([preset("llama-3.1-8b")], H100)
    assert (result.device, result.memory_free) == ("NVIDIA H100 SXM", 80 * 10**9)
    assert result.language_model_parameters == pytest.approx(8.03e9, rel=1e-3)
    assert result.communication == {}


def test_seconds_of_transfers() -> None:
    links = Links(2.0, 1.0)
    assert Grid(1, 1).all_reduce(8.0, links) == 0
    assert Grid(4, 1).all_reduce(8.0, links) == 2 * 3 / 4 * 8 / 2
    assert Grid(4, 2).all_reduce(8.0, links) == 2 * 1 / 2 * 8 / 2 + 2 * 1 / 2 * 4 / 1
    assert Grid(2, 2).all_reduce(8.0, links) == 8
    assert Grid(4, 2).all_to_all(8.0, links) == 8 / 2 + 2 * 8 / 1
    assert Grid(12, 3).smaller() == [Grid(1, 1), Grid(2, 1), Grid(4, 1), Grid(8, 2), Grid(12, 3)]


def test_more_machines_are_not_recommended_where_gradients_take_longer_than_they_save() -> None:
    runs, sixteen = [preset("llama-3.1-8b")], H100._replace(processes=16, nodes=2)
    eight = plan_training(runs, sixteen._replace(processes=8, nodes=1))
    assert plan_training(runs, sixteen).tokens_per_second < eight.tokens_per_second
    best = recommend(runs, sixteen)
    large = recommend([preset("llama-3.1-8b", batch_tokens=2**17, buffer_tokens=2**17)], sixteen)
    assert best is not None and large is not None
    assert best.setup.nodes == 1
    assert (large.setup.processes, large.setup.nodes) == (16, 2)
    assert large.tokens_per_second > best.tokens_per_second


def test_a_model_that_does_not_fit_is_recommended_sharded() -> None:
    best = recommend([preset("qwen3-32b", layer=60)], H100._replace(processes=8))
    assert best is not None
    assert best.setup.sharding == "fsdp"
