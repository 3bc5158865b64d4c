"""Two processes under ``torchrun`` are one: the same weights, the same index; and what happens when one dies."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.cli import main
from backend.cli import run as mxd
from tests.language_models import saved_language_model
from tests.runs import World
from tests.torchrun import ended, ranks, start
from trainer.activations import Stream, batches
from trainer.config import TrainConfig
from trainer.distributed import Ranks
from trainer.errors import UserError
from trainer.run import Run, runs_folder
from trainer.store import ContextRecord, ExpertRecord, IndexRecord, MetricRecord, RunRecord, SequenceRecord


@pytest.fixture
def words(world: World, tmp_path: Path) -> list[str]:
    """Settings of a run of 24 steps of 64 tokens, without a name."""
    language_model = saved_language_model(tmp_path / "language-model")
    flags = "--layer 1 --num-experts 40 --k 4 --context 16 --batch 64 --window 512 --learning-rate 0.01 --log-every 4"
    given = [
        "--text",
        world.text.text,
        "--data",
        str(world.data),
        "--tokens",
        str(24 * 64),
        "--checkpoint-every",
        "256",
    ]
    return [str(language_model), *flags.split(), *given]


def rows(world: World, kind: type[Any], name: str) -> list[tuple[object, ...]]:
    """All that the store has of a run in one table, but for ids and times."""
    with Session(world.store) as session:
        run_id = session.scalars(select(RunRecord.id).where(RunRecord.name == name)).one()
        left_out = {"id", "run_id", "created_at", "seconds", "tokens_per_second"}
        columns = [column for column in kind.__table__.columns if column.name not in left_out]
        found = session.execute(select(*columns).where(kind.run_id == run_id))
        return sorted((tuple(row) for row in found), key=repr)


def check_same_weights(world: World, left: str, right: str) -> None:
    pair = [Run.load(name, world.data).layer.state_dict() for name in (left, right)]
    for name, value in pair[0].items():
        torch.testing.assert_close(value, pair[1][name], rtol=1e-4, atol=1e-5, msg=name)


def test_two_processes_fit_and_index_what_one_does(world: World, words: list[str]) -> None:
    assert mxd(["train", *words, "--name", "one"]) == 0
    both = ranks(main, "train", *words, "--name", "two", "--json")
    assert [one.returncode for one in both] == [0, 0], [one.stderr for one in both]
    assert json.loads("".join(one.stdout for one in both))["tokens"] == 24 * 64
    check_same_weights(world, "one", "two")
    for ours, theirs in zip(rows(world, MetricRecord, "one"), rows(world, MetricRecord, "two"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    index = ["--text", world.text.text, "--tokens", "2400", "--data", str(world.data), "--top", "3"]
    # One run, so that both index the same weights; what they find is compared to the bit.
    assert mxd(["index", "one", *index]) == 0
    kinds = (ExpertRecord, ContextRecord, SequenceRecord, IndexRecord)
    alone = {kind: rows(world, kind, "one") for kind in kinds}
    both = ranks(main, "index", "one", *index, "--json")
    assert [one.returncode for one in both] == [0, 0], [one.stderr for one in both]
    assert json.loads("".join(one.stdout for one in both))["tokens"] == 2400
    for kind in kinds:
        assert rows(world, kind, "one") == alone[kind], kind


def test_experts_spread_over_two_processes_and_taken_up_by_one(world: World, words: list[str]) -> None:
    done = ranks(main, "train", *words, "--name", "spread", "--experts", "spread")
    assert [one.returncode for one in done] == [0, 0], [one.stderr for one in done]
    assert mxd(["train", *words, "--name", "whole"]) == 0
    check_same_weights(world, "spread", "whole")
    # What only a checkpoint has: the optimiser's moments, whole again, so that one process could go on.
    checkpoints = [load_file(optimizer_file(world, name)) for name in ("spread", "whole")]
    for name, value in checkpoints[0].items():
        torch.testing.assert_close(value, checkpoints[1][name], rtol=1e-3, atol=1e-5, msg=name)


def test_stopped_with_two_and_resumed_with_one(world: World, words: list[str]) -> None:
    words = [*words, "--when-short", "repeat", "--tokens", str(100 * 64)]
    with start("backend.cli", "train", *words, "--name", "parts") as process:
        folder = runs_folder(world.data) / "parts"
        wait_for_checkpoint(process, folder)
        process.send_signal(signal.SIGTERM)
        stopped = ended(process)
    assert not (folder / "layer.safetensors").is_file(), stopped.stderr
    assert mxd(["train", *words, "--name", "parts", "--resume"]) == 0
    assert mxd(["train", *words, "--name", "whole"]) == 0
    check_same_weights(world, "parts", "whole")


def test_when_one_dies_the_other_says_so_and_the_last_checkpoint_is_whole(world: World, words: list[str]) -> None:
    words = [*words, "--when-short", "repeat", "--tokens", str(100_000 * 64)]
    with start("backend.cli", "train", *words, "--name", "killed") as process:
        folder = runs_folder(world.data) / "killed"
        wait_for_checkpoint(process, folder)
        os.kill(second_of(process.pid), signal.SIGKILL)
        done = ended(process)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("mxd:")]
    assert said == ["mxd: Process 0 of 2 cannot go on, because another one has ended; what is written is whole."] or (
        # torchrun may ask the first to stop before it has noticed.
        [line for line in said if "stopped" in line]
    ), done.stderr
    run = Run.load("killed", world.data)
    assert not run.is_fitting
    assert run.last_checkpoint() is not None
    assert run.layer.num_parameters > 0
    assert not list(folder.glob("*.partial"))


def optimizer_file(world: World, name: str) -> Path:
    checkpoint = Run.load(name, world.data).last_checkpoint()
    assert checkpoint is not None
    return checkpoint / "optimizer.safetensors"


def wait_for_checkpoint(process: Popen[str], folder: Path) -> None:
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoint-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def second_of(parent: int) -> int:
    """The process of rank 1 among the children of ``torchrun``."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"\0RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes():
            return int(child)
    raise AssertionError("there is no second process")


def test_a_run_that_exists_is_told_once(world: World, words: list[str]) -> None:
    assert mxd(["train", *words, "--name", "there"]) == 0
    done = ranks(main, "train", *words, "--name", "there")
    assert [one.returncode for one in done] == [2, 2]
    said = [line for one in done for line in one.stderr.splitlines() if line.startswith("mxd:")]
    assert said == ["mxd: The run there exists; go on with --resume, or choose another --name."]


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_shares_of_a_step_are_the_step(world: World, world_size: int) -> None:
    stream = Stream.of([world.config()])
    whole = [batch[1].input_TI for batch in batches(world.language_model, stream, 5)]
    shares = [
        [batch[1].input_TI for batch in batches(world.language_model, stream, 5, Ranks(rank, world_size))]
        for rank in range(world_size)
    ]
    assert len(whole) == 24 - 5
    for step, rows_TI in enumerate(whole):
        torch.testing.assert_close(torch.cat([share[step] for share in shares]), rows_TI, rtol=1e-5, atol=1e-6)


def test_a_step_that_cannot_be_shared_evenly(world: World) -> None:
    config: TrainConfig = world.config()
    with pytest.raises(UserError, match="multiple of 48"):
        next(batches(world.language_model, Stream.of([config]), 0, Ranks(0, 3)))


def test_a_language_model_is_spread_by_one_process_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(UserError, match="nproc-per-node 1"):
        Ranks(0, 2).device("spread")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert Ranks(0, 2).device("spread") == "spread"
