"""Training on cached activations, also while they are written, equals training on the language model."""

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
from mxd.trainer.config.training import OptimizerConfig
from mxd.trainer.data import activation_cache, activations
from mxd.trainer.data.activation_cache import MANIFEST, ActivationCache, CacheManifest, filled_cache, write_cache
from mxd.trainer.data.activations import LiveActivations, StreamSpec, batches
from mxd.trainer.errors import CancelledError, NotFoundError, UserError
from mxd.trainer.storage.database.tables import MetricRecord
from mxd.trainer.storage.run import Run, checkpoints, runs_folder
from mxd.trainer.utils.distributed import ProcessGroup
from tests.helpers.processes import ROOT, SEVERAL_SECONDS, Forked, started_processes, wait_for
from tests.helpers.runs import World, saved_language_model, stop_after, train_layer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def both(shared: World) -> StreamSpec:
    """Activations of two layers."""
    return StreamSpec.from_configs([shared.config(layer=layer) for layer in (0, 1)])


@pytest.fixture(scope="module")
def cache(shared: World, both: StreamSpec) -> ActivationCache:
    """A complete cache of both layers."""
    return filled_cache(shared.data / "cache", both, shared.language_model)


def stream_of(world: World, **settings: Any) -> StreamSpec:
    return StreamSpec.from_configs([world.config(**settings)])


@pytest.mark.parametrize("first_step", [0, 5])
def test_batches_equal_those_of_the_language_model(shared: World, cache: ActivationCache, first_step: int) -> None:
    stream = stream_of(shared)
    live = list(batches(LiveActivations(shared.language_model), stream, first_step))
    cached = list(batches(cache, stream, first_step))
    assert len(live) == len(cached) > 1
    for one, other in zip(live, cached, strict=True):
        for expected, value in zip(one[1], other[1], strict=True):
            assert torch.equal(expected.bfloat16().float(), value)


def test_a_longer_run_reads_the_cache_again_in_another_order(shared: World, cache: ActivationCache) -> None:
    longer = {"tokens": 3 * shared.config().tokens, "text": shared.text.model_copy(update={"on_short_text": "repeat"})}
    stream = stream_of(shared, **longer)
    steps = [batch[1].input_TI for batch in batches(cache, stream)]
    assert len(steps) == stream.plan.steps
    full = cache.tokens // stream.plan.buffer_tokens * stream.plan.steps_per_buffer
    first, again = torch.cat(steps[:full]), torch.cat(steps[-full:])
    assert not torch.equal(first, again)
    assert torch.equal(first.sort(dim=0).values, again.sort(dim=0).values)


def test_training_on_a_cache_needs_no_forward_pass(
    shared: World, cache: ActivationCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(shared.language_model), "capture_layers", None)
    config = shared.config(name="cached")
    result = train_layer(config, shared.data, shared.database, shared.language_model, cache=cache)
    assert result.status == "finished"


def test_a_run_on_a_cache_is_resumed_without_naming_its_start_token(world: World) -> None:
    cache = filled_cache(world.data / "cache", stream_of(world), world.language_model)
    train_layer(world.config(), world.data, world.database, world.language_model, cache=cache)
    stored = Run.load("small", world.data).config
    assert stored.text.start_token is not None
    for config in (world.config(), stored):
        cache.check(StreamSpec.from_configs([config]))
    with pytest.raises(UserError, match="another dataset settings"):
        cache.check(stream_of(world, text=world.text.model_copy(update={"start_token": "<s>"})))


def test_an_interrupted_cache_is_continued(
    shared: World, tmp_path: Path, both: StreamSpec, cache: ActivationCache
) -> None:
    with pytest.raises(CancelledError, match="same command again"):
        filled_cache(tmp_path, both, shared.language_model, callbacks=stop_after(2))
    assert len(ActivationCache.open(tmp_path, CPU).manifest.files) == 2
    finished = filled_cache(tmp_path, both, shared.language_model)
    assert finished.manifest.files == cache.manifest.files


@pytest.fixture(scope="module", params=[2, 4])
def parted(shared: World, both: StreamSpec, cache: ActivationCache, request: pytest.FixtureRequest) -> ActivationCache:
    """The same cache, begun by several processes and continued by one."""
    begun = CacheManifest.from_stream(both, shared.language_model, request.param)
    folder = cache.folder.with_name(f"parted-{request.param}")
    folder.mkdir()
    (folder / MANIFEST).write_text(begun.model_dump_json())
    return filled_cache(folder, both, shared.language_model)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_process_opens_only_the_files_with_its_sequences(
    shared: World, cache: ActivationCache, parted: ActivationCache, world_size: int
) -> None:
    stream = stream_of(shared)
    assert len(parted.manifest.files) == parted.manifest.parts * len(cache.manifest.files)
    for rank in range(world_size):
        group = ProcessGroup(rank, world_size)
        reader = ActivationCache.open(parted.folder, CPU)
        expected, found = list(batches(cache, stream, 0, group)), list(batches(reader, stream, 0, group))
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(one[1].input_TI, other[1].input_TI, rtol=1e-2, atol=1e-5)
        opened = len(reader.verified) / cache.manifest.complete_buffers
        assert opened == max(1, parted.manifest.parts / world_size)


def test_other_settings_are_rejected(shared: World, cache: ActivationCache) -> None:
    rejected: dict[str, dict[str, Any]] = {
        "another --data-seed": {"seed": 3},
        "Add --on-short-text=repeat": {"tokens": 10**6},
        "another language model": {"layer": 1, "language_model": "other"},
        "lacks layer 2": {"layer": 2},
    }
    for message, settings in rejected.items():
        with pytest.raises(UserError, match=message):
            cache.check(stream_of(shared, **settings))


def test_another_cache_is_left_alone_and_damaged_files_are_rejected(shared: World, tmp_path: Path) -> None:
    stream, own_cache = stream_of(shared), tmp_path
    write_cache(own_cache, stream, shared.language_model)
    with pytest.raises(UserError, match="cache with other settings"):
        write_cache(own_cache, stream_of(shared, seed=5), shared.language_model)
    damaged = own_cache / "layer-1" / "00001.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    with pytest.raises(UserError, match=r"00001\.safetensors is damaged"):
        list(batches(ActivationCache.open(own_cache, CPU), stream))
    damaged.unlink()
    with pytest.raises(UserError, match="No such file"):
        list(batches(ActivationCache.open(own_cache, CPU), stream))
    (own_cache / MANIFEST).write_text("{")
    with pytest.raises(UserError, match=r"cache\.json is damaged"):
        ActivationCache.open(own_cache, CPU)
    (own_cache / MANIFEST).unlink()
    with pytest.raises(NotFoundError, match="No activation cache"):
        ActivationCache.open(own_cache, CPU)


OTHER_BATCHES = OptimizerConfig(batch_tokens=32, buffer_tokens=512)


@pytest.mark.parametrize(
    "changes", [{"tokens": 64}, {"seed": 1}, {"optimizer": OTHER_BATCHES}, {"language_model": "other"}]
)
def test_runs_with_different_batches_are_rejected(world: World, changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="trained together"):
        StreamSpec.from_configs([world.config(), world.config(**changes)])


def test_prefetched_buffers_are_identical(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, source = stream_of(world), LiveActivations(world.language_model)
    assert not activations.prefetches(CPU), "the two would take each other's cores"
    plain = list(batches(source, stream))
    monkeypatch.setattr(activations, "prefetches", lambda _device: True)
    for one, other in zip(plain, batches(source, stream), strict=True):
        assert torch.equal(one[1].output_TO, other[1].output_TO)


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
        flags = "--layer 1 --num-experts 40 --k 4 --context-length 16 --batch-tokens 64 --buffer-tokens 512"
        flags += " --log-every 4 --learning-rate 0.01 --tokens 1536 --checkpoint-every 1024"
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
        said = [one.communicate(SEVERAL_SECONDS)[1] for one in followers]
        writer.communicate(SEVERAL_SECONDS)
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
        said = "\n".join(one.communicate(SEVERAL_SECONDS)[1] for one in followers)
        assert [one.returncode for one in followers] == [2] * processes, said
        writer.communicate(SEVERAL_SECONDS)
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
        said = follower.communicate(SEVERAL_SECONDS)[1]
        assert follower.returncode == 128 + signal.SIGTERM, said
        jobs.order("write write")
        writer.communicate(SEVERAL_SECONDS)
    assert jobs.checkpoints() == [f"checkpoint-{BUFFER_STEPS}"]
