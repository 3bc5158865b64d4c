"""A large shape is measured on a few of its blocks, compared with its plan, and extrapolated along lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.trainer.large import measure as large
from benchmarks.trainer.large.line import Line
from benchmarks.trainer.large.measure import LargeSizes, bench_large
from benchmarks.trainer.large.parts import Place, step_part
from benchmarks.trainer.large.shape import Shape, in_memory, on_disk
from benchmarks.trainer.memory import in_a_process
from mxd.trainer.config import LayerConfig
from mxd.trainer.config.presets import shape_of
from mxd.trainer.errors import UserError
from mxd.trainer.training.plan import ADAMW_BYTES, LayerSizes
from mxd.trainer.training.rates import DeviceRates
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.language_models import CONFIGS, byte_tokenizer

SIZES = LargeSizes(
    blocks=(1, 2, 3), num_experts=(20, 40, 60), k=4, tokens=64, batch=32, context=16, parts=("forward", "step", "whole")
)
IDS_BC = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    return Place(tmp_path / "tokenizer", "cpu", "memory", rounds=1)


@pytest.fixture
def shape(tmp_path: Path) -> Shape:
    CONFIGS["llama"].save_pretrained(tmp_path / "language-model")
    return Shape.find(str(tmp_path / "language-model"))


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is done here, on a device that does a FLOP in a nanosecond and moves a byte in another."""
    monkeypatch.setattr(large, "in_a_process", lambda work, *given: work(*given))
    rates: Any = lambda products, *_: DeviceRates(dict.fromkeys(products, 1e9), 1e9)  # noqa: E731
    monkeypatch.setattr(large, "measure", rates)


def test_every_part_is_measured_and_compared_with_its_plan(shape: Shape, place: Place) -> None:
    told: list[tuple[int, int, str]] = []
    found = bench_large(shape, SIZES, place, Callbacks(lambda *news: told.append(news)))
    assert [(it.part, it.blocks, it.num_experts) for it in found.points] == [
        *(("forward", blocks, None) for blocks in (1, 2, 3)),
        *(("step", None, count) for count in (20, 40, 60)),
        ("whole", 3, 20),
    ]
    for it in found.points:
        assert min(it.seconds_per_token, it.planned_seconds_per_token, it.planned_memory, it.parameters) > 0
    assert (told[0], told[-1]) == ((0, 7, "forward pass, 1 block"), (7, 7, ""))
    one, two, three = (it.parameters for it in found.points[:3])
    assert two - one == three - two
    assert found.block_parameters <= two - one < 1.1 * found.block_parameters  # norms are no matrices
    assert found.lines.seconds_by_blocks is not None
    assert found.lines.seconds_by_blocks.residual is not None
    assert found.full_size is not None
    assert found.full_size.blocks == CONFIGS["llama"].num_hidden_layers
    assert found.full_size.blocks_run == shape.layer + 1


def test_extrapolated_plans_equal_the_plan_at_full_size(shape: Shape, place: Place) -> None:
    found = bench_large(shape, replace(SIZES, parts=("forward", "step")), place)
    forward, steps = found.points[:3], found.points[3:]
    assert found.full_size is not None
    by_blocks = Line.through([1, 2, 3], [it.planned_seconds_per_token for it in forward])
    by_experts = Line.through([20, 40, 60], [it.planned_seconds_per_token for it in steps])
    assert by_blocks is not None
    assert by_experts is not None
    seconds = by_blocks.at(found.full_size.blocks_run) + by_experts.at(found.full_size.num_experts)
    assert found.full_size.planned_tokens_per_second == pytest.approx(1 / seconds, rel=1e-4)


def test_one_depth_cannot_be_extrapolated(shape: Shape, place: Place) -> None:
    found = bench_large(shape, replace(SIZES, blocks=(2,), num_experts=(20,)), place)
    assert found.lines.seconds_by_blocks is None
    assert found.full_size is None
    assert len(found.points) == 3


@pytest.mark.parametrize(
    ("part", "said"), [("forward", "--weights disk"), ("step", "smaller --batch"), ("whole", "leave whole out")]
)
def test_insufficient_memory_is_reported_before_building(
    shape: Shape, place: Place, monkeypatch: pytest.MonkeyPatch, part: Any, said: str
) -> None:
    monkeypatch.setattr(large, "free_bytes", lambda _device: 1000)
    monkeypatch.setattr(large, "in_a_process", lambda *_given: pytest.fail("something was built"))
    with pytest.raises(UserError, match=f"GB are free; .*{said}"):
        bench_large(shape, replace(SIZES, parts=(part,)), place)


@pytest.mark.parametrize("family", ["falcon", "gpt2", "llama", "opt"])
def test_blocks_on_disk_give_the_same_outputs(family: str, place: Place, tmp_path: Path) -> None:
    shape = Shape(family, CONFIGS[family], 1, None, 4)
    folder = shape.write(tmp_path, 2)
    kept = in_memory(folder, place.tokenizer, torch.float32, "cpu").capture(1, IDS_BC)
    spread = on_disk(folder, place.tokenizer, torch.float32, "cpu")
    assert len(spread.architecture.blocks) == 2
    assert all(parameter.is_meta for block in spread.architecture.blocks for parameter in block.parameters())
    torch.testing.assert_close(spread.capture(1, IDS_BC).output_TO, kept.output_TO)


def test_blocks_on_disk_are_planned_with_the_memory_of_one(shape: Shape, place: Place) -> None:
    found = bench_large(shape, replace(SIZES, parts=("forward",)), replace(place, weights="disk"))
    one, two, three = (it.planned_memory for it in found.points)
    assert one == two == three


def test_truncated_presets_keep_their_widths() -> None:
    shape = Shape.find("llama-3.1-70b")
    assert (shape.layer, shape.num_experts, shape.blocks) == (40, 65_536, 80)
    cut = shape.cut(2)
    assert (cut.num_hidden_layers, cut.hidden_size, cut.intermediate_size) == (2, 8192, 28672)
    assert shape.blocks == 80
    for name in ("qwen3-32b", "gemma-3-1b"):  # these say of every block what kind it is
        assert len(Shape.find(name).cut(3).layer_types) == 3
    assert shape_of("gpt2") == {"model_type": "gpt2"}


def test_a_line_fit_has_residuals() -> None:
    line = Line.through([1, 2, 3], [3.0, 5.0, 7.0])
    assert line is not None
    assert (line.start, line.each) == pytest.approx((1.0, 2.0))
    assert line.residual == pytest.approx(0, abs=1e-9)
    assert line.at(10) == pytest.approx(21)
    bent = Line.through([0, 1, 2], [1.0, 1.0, 4.0])
    assert bent is not None
    assert bent.residual == pytest.approx(1.0)  # 0.5, 2 and 3.5: the second is one whole of itself away
    two = Line.through([1, 2], [1.0, 2.0])
    assert two is not None
    assert two.residual is None
    assert Line.through([2, 2], [1.0, 1.0]) is None


LIBRARIES = 1.5 * 10**8
"""Upper bound, in bytes, of PyTorch's own files that a first step loads into memory."""


def test_the_memory_of_a_step_equals_that_of_its_layer(place: Place) -> None:
    config = LayerConfig(
        input_width=256,
        hidden_width=512,
        output_width=256,
        num_experts=40_000,
        k=4,
        activation="silu",
        encoder="glu",
    )
    taken = in_a_process(step_part, config, 32, place)
    wanted = ADAMW_BYTES * LayerSizes.from_config(config).parameters
    assert 0.75 * wanted < taken.memory < 1.25 * wanted + LIBRARIES
    assert taken.program > 10**8
