"""The prepared GPU run, rehearsed on the CPU: packed, run from the pack, resumed and collected."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.commands.bench_gpu import SECTIONS, all_sections
from benchmarks.gpu.layer_step import products_in, training_step
from benchmarks.gpu.pack import Pack, Recipe, write_pack
from benchmarks.gpu.sections import Outcome, Point, Section, Setting, earlier, here, in_a_fork, run_sections
from benchmarks.gpu.shapes import TINY_SHAPES
from benchmarks.gpu.training import collect
from benchmarks.gpu.weights import compact, expand, load_parts, save_parts
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers import ops
from mxd.trainer.layers.ops import triton_ops
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.run import Run
from tests.helpers.formats.gguf_files import write_gguf

RECIPE = Recipe((0,), k=4, tokens=2048 * 6)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    lines = [json.dumps({"text": f"the other thing, {number}"}) for number in range(200)]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    return tmp_path / "text.jsonl"


@pytest.fixture
def pack(tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MXD_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "whole.gguf")
    write_pack(tmp_path / "pack", tmp_path / "whole.gguf", str(text), 1_000_000, RECIPE)
    return tmp_path / "pack"


def setting(tmp_path: Path, pack: Path, name: str, resume_from: Path | None = None) -> Setting:
    return Setting("cpu", True, tmp_path / name, pack, resume_from)


def run(where: Setting, *names: str, seconds: float = 600) -> dict[str, Outcome]:
    sections = [all_sections()[name] for name in names or SECTIONS]
    return run_sections(sections, where, time.time() + seconds, {}, here, lambda _line: None)


def test_every_section_runs_on_a_cpu(tmp_path: Path, pack: Path) -> None:
    outcomes = run(setting(tmp_path, pack, "out"))
    assert {name: outcome.error for name, outcome in outcomes.items()} == dict.fromkeys(SECTIONS)
    kernels = outcomes["kernels"].points
    assert len(kernels) == 8
    assert all(point["is_correct"] for point in kernels)
    assert all(point["share_of_roofline"] > 0 for point in outcomes["layer"].points[1:])
    assert earlier(tmp_path / "out") == outcomes

    database = open_trainer_database(sqlite_url(tmp_path))
    assert collect(tmp_path / "out", tmp_path, database, str(tmp_path / "whole.gguf"), "text.jsonl") == ["layer-0"]
    database.dispose()
    trained = Run.load("layer-0", tmp_path)
    assert trained.config.language_model == str(tmp_path / "whole.gguf")
    assert bool(torch.isfinite(next(trained.layer.parameters())).all())


def test_training_continues_from_the_files_of_an_earlier_call(tmp_path: Path, pack: Path) -> None:
    halves = setting(tmp_path, pack, "first")
    ticks = iter([*[True] * 3, *[False] * 99])
    stopping = type("Stopping", (Setting,), {"left": property(lambda _self: 1.0 if next(ticks) else -1.0)})
    first = stopping(**halves.__dict__)
    (tmp_path / "first").mkdir()
    points = list(all_sections()["training"].points(first))
    assert (points[-1]["status"], points[-1]["step"]) == ("stopped", 4)
    run_sections(
        [Section("training", lambda _setting: iter(points), 1)], halves, time.time(), {}, here, lambda _line: None
    )
    outcomes = run(setting(tmp_path, pack, "second", tmp_path / "first"), "training")
    point = outcomes["training"].points[-1]
    assert (point["status"], point["step"], point["tokens"]) == ("finished", 6, RECIPE.tokens)
    assert outcomes["training"].error is None
    assert point["normalized_mse"] < 1


def test_packed_blocks_equal_the_whole_model(tmp_path: Path, pack: Path) -> None:
    cut = LanguageModel.load(Pack.open(pack).language_model, "cpu")
    whole = LanguageModel.load(str(tmp_path / "whole.gguf"), "cpu")
    assert (len(cut.architecture.blocks), len(whole.architecture.blocks)) == (1, 2)
    ids_1T = torch.tensor([whole.tokenizer("the other thing, 12", add_special_tokens=False)["input_ids"]])
    for actual, expected in zip(cut.capture(0, ids_1T), whole.capture(0, ids_1T), strict=True):
        assert torch.equal(actual, expected)


def test_a_failing_or_slow_section_does_not_stop_the_next(tmp_path: Path) -> None:
    def fails(_setting: Setting) -> Iterator[Point]:
        yield {"value": 1}
        raise ValueError("no such kernel")

    def hangs(where: Setting) -> Iterator[Point]:
        yield {"value": 2}
        time.sleep(60)

    def works(_setting: Setting) -> Iterator[Point]:
        yield {"value": 3}

    sections = [Section("fails", fails, 1), Section("hangs", hangs, 0), Section("works", works, 1)]
    where = Setting("cpu", True, tmp_path, None, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.gpu.sections.STOP_SECONDS", 0.3)
        run_sections(sections, where, time.time() + 60, {}, in_a_fork, lambda _line: None)
    outcomes = earlier(tmp_path)
    assert [outcome.points for outcome in outcomes.values()] == [[{"value": 1}], [{"value": 2}], [{"value": 3}]]
    assert "ValueError: no such kernel" in str(outcomes["fails"].error)
    assert "time limit" in str(outcomes["hangs"].error)
    assert outcomes["works"].is_complete


def test_parts_hold_all_rows_in_files_of_limited_size(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(1000, 7), "b": torch.randn(5), "c": torch.arange(3000, dtype=torch.int32)}
    names = save_parts(tensors, tmp_path, "layer", most_bytes=4096)
    assert all((tmp_path / name).stat().st_size < 4096 + 4096 for name in names)
    assert len(names) > 8
    loaded = load_parts(tmp_path, "layer")
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], value) for name, value in tensors.items())


def test_second_moments_of_rank_one_survive_compaction() -> None:
    squares = torch.outer(torch.rand(6), torch.rand(4))
    moments = {"w/exp_avg_sq": squares, "w/exp_avg": torch.randn(6, 4), "w/step": torch.tensor(7.0)}
    weights, restored = expand(compact({"w": torch.ones(6, 4)}, moments))
    assert torch.equal(weights["w"], torch.ones(6, 4))
    torch.testing.assert_close(restored["w/exp_avg_sq"], squares)
    assert restored["w/step"] == 7
    assert not restored["w/exp_avg"].any()


def test_an_output_folder_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "--device", "cpu", "--tiny"]) == 2
    assert "Add --out" in capsys.readouterr().err


def test_a_step_of_the_kernels_with_bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "ops_for", lambda _tensor: triton_ops)
    step = training_step(TINY_SHAPES[1], "cpu")
    with products_in("bfloat16", "cpu"):
        step()
