"""A run follows a cache that another process is still writing, and survives the end of that process."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.backend.cli.main import main
from mxd.backend.cli.main import run as mxd
from mxd.trainer.data import activation_cache
from mxd.trainer.data.activation_cache import MANIFEST, ActivationCache
from mxd.trainer.storage.database.tables import MetricRecord
from mxd.trainer.storage.run import checkpoints, runs_folder
from tests.helpers.forking.forked import Forked
from tests.helpers.forking.torchrun import ROOT, TIMEOUT_SECONDS, started_processes
from tests.helpers.language_models import saved_language_model
from tests.helpers.processes import wait_for
from tests.helpers.runs import World

BUFFER_STEPS = 8
ROUNDING = (1e-4, 1e-5)
ORDERS = "MXD_TESTS_ORDERS"
"""Environment variable: file with one order per buffer after the first one."""


def writing_on_order() -> None:
    """``mxd`` that writes each buffer of a cache after the first one when ordered to, or ends as ordered."""
    write, orders = activation_cache._write_parts, Path(os.environ[ORDERS])

    def ordered(*inputs: Any, **named: Any) -> dict[str, str]:
        index = inputs[2]
        while index and len(orders.read_text().split()) < index:
            time.sleep(0.02)
        order = orders.read_text().split()[index - 1] if index else "write"
        if order != "write":
            os.kill(os.getpid(), {"die": signal.SIGKILL, "stop": signal.SIGTERM}[order])
        return write(*inputs, **named)

    activation_cache._write_parts = ordered
    main()


class Jobs:
    """Command lines of a job that writes a cache, and of jobs that follow it."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.cache, self.orders = world, folder / "cache", folder / "orders"
        self.orders.touch()
        flags = (
            "--layer 1 --num-experts 40 --k 4 --context-length 16 --batch-tokens 64 --buffer-tokens 512 --log-every 4"
        )
        flags += " --learning-rate 0.01 --tokens 1536 --checkpoint-every 1024"
        data = ["--dataset", world.text.dataset, "--data", str(world.data), "--cache", str(self.cache)]
        self.flags = [str(saved_language_model(folder / "language-model")), *flags.split(), *data]

    def words(self, name: str) -> list[str]:
        return ["train", *self.flags, "--name", name, "--resume"]

    @contextmanager
    def writer(self) -> Iterator[Forked]:
        """A job that has written the first buffer and waits for orders."""
        environment = {**os.environ, ORDERS: str(self.orders)}
        with Forked(writing_on_order, ["mxd", *self.words("writer")], ROOT, environment) as writer:
            wait_for((self.cache / MANIFEST).is_file)
            yield writer

    def order(self, words: str) -> None:
        self.orders.write_text(words)

    def has_followed(self) -> bool:
        """True once the follower has taken all steps of the first buffer."""
        return max((metric.step for metric in self.world.rows(MetricRecord)), default=0) == BUFFER_STEPS

    def checkpoints(self) -> list[str]:
        """Names of the follower's checkpoints."""
        return [path.name for path in checkpoints(runs_folder(self.world.data) / "follower")]


@pytest.fixture
def jobs(world: World, tmp_path: Path) -> Jobs:
    return Jobs(world, tmp_path)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_on_a_cache_that_is_being_written_equals_one_on_the_finished_cache(jobs: Jobs, processes: int) -> None:
    with jobs.writer() as writer, started_processes(main, *jobs.words("follower"), processes=processes) as followers:
        wait_for(jobs.has_followed)
        jobs.order("write write")
        said = [one.communicate(TIMEOUT_SECONDS)[1] for one in followers]
        writer.communicate(TIMEOUT_SECONDS)
    assert [one.returncode for one in (writer, *followers)] == [0] * (1 + processes), said
    assert "Another process is writing" in said[0], said
    # The writer trained on the finished cache.
    jobs.world.check_same_weights("writer", "follower", *((0, 0) if processes == 1 else ROUNDING))


@pytest.mark.parametrize(
    ("orders", "processes", "written"), [("die", 1, 512), ("write die", 2, 1024), ("stop", 1, 1024)]
)
def test_a_run_is_saved_if_the_writer_ends_early_and_continues_with_it(
    jobs: Jobs, orders: str, processes: int, written: int
) -> None:
    with jobs.writer() as writer, started_processes(main, *jobs.words("follower"), processes=processes) as followers:
        wait_for(jobs.has_followed)
        jobs.order(orders)
        said = "\n".join(one.communicate(TIMEOUT_SECONDS)[1] for one in followers)
        assert [one.returncode for one in followers] == [2] * processes, said
        writer.communicate(TIMEOUT_SECONDS)
    assert said.count(f"has ended after {written:,} of 1,536 tokens") == 1, said
    assert "Traceback" not in said
    assert jobs.checkpoints() == [f"checkpoint-{written // 64}"]
    assert mxd(jobs.words("writer")) == mxd(jobs.words("follower")) == 0
    assert ActivationCache.open(jobs.cache, torch.device("cpu")).manifest.is_complete
    jobs.world.check_same_weights("writer", "follower", *ROUNDING)


def test_a_follower_that_is_stopped_saves_its_run(jobs: Jobs) -> None:
    with jobs.writer() as writer, Forked(main, ["mxd", *jobs.words("follower")], ROOT, os.environ) as follower:
        wait_for(jobs.has_followed)
        follower.terminate()
        said = follower.communicate(TIMEOUT_SECONDS)[1]
        assert follower.returncode == 128 + signal.SIGTERM, said
        jobs.order("write write")
        writer.communicate(TIMEOUT_SECONDS)
    assert jobs.checkpoints() == [f"checkpoint-{BUFFER_STEPS}"]
