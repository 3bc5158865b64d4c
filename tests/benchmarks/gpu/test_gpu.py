"""The prepared GPU run, rehearsed on the CPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.commands.bench_gpu import SECTIONS, all_sections
from benchmarks.gpu.account import step_account
from benchmarks.gpu.layer_step import random_batch, shape_trainer
from benchmarks.gpu.sections import REPORT_FILE, Outcome, Point, Section, Setting, here, in_a_fork, run_sections
from benchmarks.gpu.shapes import PAPER_SHAPES, TINY_SHAPES
from mxd.trainer.layers import ops, triton_ops


def run(where: Setting, *names: str, seconds: float = 600) -> dict[str, Outcome]:
    sections = [all_sections()[name] for name in names or SECTIONS]
    return run_sections(sections, where, time.time() + seconds, {}, here, lambda _line: None)


def test_every_section_runs_on_a_cpu(tmp_path: Path) -> None:
    outcomes = run(Setting("cpu", True, tmp_path))
    assert {name: outcome.error for name, outcome in outcomes.items()} == dict.fromkeys(SECTIONS)
    smoke = outcomes["smoke"].points
    assert [point["command"] for point in smoke] == [
        *("train", "index") * 2,
        *("evaluate", "route", "steer", "circuit", "serve"),
    ]
    assert smoke[-1]["routed"] > 3
    kernels = outcomes["kernels"].points
    assert len(kernels) == 8
    assert all(point["is_correct"] for point in kernels)
    assert all(point["share_of_roofline"] > 0 and point["equals_eager"] for point in outcomes["layer"].points[1:])
    assert json.loads((tmp_path / REPORT_FILE).read_text("utf-8"))["sections"].keys() == set(SECTIONS)


def test_a_command_that_fails_ends_the_smoke_test_with_its_message(tmp_path: Path) -> None:
    outcome = run(Setting("cuda:7", True, tmp_path), "smoke")["smoke"]
    assert outcome.points == []
    assert "mxd train" in str(outcome.error)
    assert "cuda" in str(outcome.error)


def test_the_account_counts_what_a_step_must_do() -> None:
    """Products, gathers and the optimizer by hand, for GPT-2's layer; the goal is an estimate for an H100."""
    shape = PAPER_SHAPES[0]
    tokens, width, hidden, experts, k = shape.tokens, shape.width, shape.hidden_width, shape.num_experts, shape.k
    parts = step_account(shape, "medium")
    assert parts["scores"].flops == 2 * tokens * width * experts
    # encoder: forward and weights; decoder: also the gradient of its input
    assert parts["encoder and decoder"].flops == 2 * tokens * width * hidden * 5
    assert parts["mix_rows"].kernels == 1
    assert parts["row_dots"].kernels == parts["sum_by_expert"].kernels == 2
    gathered = 4 * tokens * k * width
    assert gathered < parts["mix_rows"].bytes < 1.1 * gathered
    assert parts["sum_by_expert"].bytes == pytest.approx(2 * (gathered + 4 * experts * width), rel=0.02)
    weights = 2 * width * hidden + hidden + experts * (2 * width + 1) + width
    assert parts["AdamW"].bytes == 28 * weights
    scores = 2 * tokens * experts
    assert scores < parts["largest scores"].bytes < 2 * scores  # one pass, and the candidates
    assert sum(part.seconds for part in parts.values()) < 2.3e-3
    assert sum(part.kernels for part in parts.values()) < 200
    exact = step_account(shape, "highest")
    assert exact["scores"].seconds == pytest.approx(2 * tokens * width * experts / 60e12)
    assert exact["row_dots"].kernels == 1


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
    where = Setting("cpu", True, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.gpu.sections.STOP_SECONDS", 0.3)
        run_sections(sections, where, time.time() + 60, {}, in_a_fork, lambda _line: None)
    outcomes = json.loads((tmp_path / REPORT_FILE).read_text("utf-8"))["sections"]
    assert [outcome["points"] for outcome in outcomes.values()] == [[{"value": 1}], [{"value": 2}], [{"value": 3}]]
    assert "ValueError: no such kernel" in outcomes["fails"]["error"]
    assert "time limit" in outcomes["hangs"]["error"]
    assert outcomes["works"]["error"] is None


def test_an_output_folder_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "--device", "cpu", "--tiny"]) == 2
    assert "--out" in capsys.readouterr().err


def test_a_step_of_the_kernels_with_bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a GPU against the same step in float32."""
    monkeypatch.setattr(ops, "ops_for", lambda _tensor: triton_ops)
    batch = random_batch(TINY_SHAPES[1], "cpu")
    rounded, exact = (shape_trainer(TINY_SHAPES[1], "cpu", precision) for precision in ("medium", "highest"))
    output, expected = rounded.train_step(batch).output_TO, exact.train_step(batch).output_TO
    assert 0 < (output - expected).abs().max() < 0.05 * expected.abs().max()
