"""Two processes under ``torchrun``: same weights and index as one process, sharding, failures."""

import json
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from threading import Timer
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mxd.backend.cli.main import main
from mxd.backend.cli.main import run as mxd
from mxd.backend.cli.parser import guarded
from mxd.backend.database import engine
from mxd.trainer.config.training import TrainConfig
from mxd.trainer.data import activation_cache
from mxd.trainer.data.activation_cache import ActivationCache, CacheManifest
from mxd.trainer.data.activations import LiveActivations, StreamSpec, batches
from mxd.trainer.errors import PeerLostError, SilentError, UserError
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.tensor_files import read_rows
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, MetricRecord, RunRecord, SequenceRecord
from mxd.trainer.storage.run import Run, checkpoints, runs_folder
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.train import TrainingRun
from mxd.trainer.utils import distributed
from mxd.trainer.utils.distributed import Peers, ProcessGroup, init_process_group, prefetch
from tests.helpers.processes import ROOT, SEVERAL_SECONDS, run_processes, started_processes, wait_for
from tests.helpers.runs import World, saved_language_model


@pytest.fixture(scope="module")
def world(shared: World) -> World:
    return shared


@pytest.fixture(scope="module")
def flags_of_run(world: World) -> list[str]:
    """Command line of a run of 24 steps of 64 tokens, without its name."""
    language_model = saved_language_model(world.data.parent / "language-model")
    flags = "--layer 1 --num-experts 40 --k 4 --context-length 16 --batch-tokens 64 --buffer-tokens 512"
    flags += f" --learning-rate 0.01 --log-every 4 --tokens {24 * 64} --checkpoint-every 256"
    return [str(language_model), *flags.split(), "--dataset", world.text.dataset, "--data", str(world.data)]


@pytest.fixture(scope="module", autouse=True)
def _whole(flags_of_run: list[str]) -> None:
    """The run ``whole`` of a single process."""
    assert mxd(["train", *flags_of_run, "--name", "whole"]) == 0


@pytest.fixture(scope="module")
def whole_sweep(flags_of_run: list[str]) -> None:
    """The runs of ``SWEEP`` of a single process, named ``whole-l{layer}-{method}``."""
    assert mxd(["train", *flags_of_run, *SWEEP, "--name", "whole-l{layer}-{method}"]) == 0


def rows(world: World, kind: type[Any], name: str) -> list[tuple[object, ...]]:
    """Rows of a run in a table, without ids and times."""
    with Session(world.database) as session:
        run_id = session.scalars(select(RunRecord.id).where(RunRecord.name == name)).one()
        left_out = {"id", "run_id", "created_at", "seconds", "tokens_per_second"}
        columns = [column for column in kind.__table__.columns if column.name not in left_out]
        records = session.execute(select(*columns).where(kind.run_id == run_id))
        return sorted((tuple(row) for row in records), key=repr)


def check_same_weights(world: World, left: str, right: str) -> None:
    world.check_same_weights(left, right, rtol=1e-4, atol=1e-5)


def succeeding(*words: str, entry: Any = main, processes: int = 2) -> list[CompletedProcess[str]]:
    """Ends of the processes of a command that succeeds."""
    done = run_processes(entry, *words, processes=processes)
    assert [one.returncode for one in done] == [0] * processes, [one.stderr for one in done]
    return done


def test_two_processes_equal_one(world: World, flags_of_run: list[str]) -> None:
    both = succeeding("train", *flags_of_run, "--name", "two", "--json")
    assert json.loads("".join(one.stdout for one in both))["tokens"] == 24 * 64
    check_same_weights(world, "whole", "two")
    for ours, theirs in zip(rows(world, MetricRecord, "whole"), rows(world, MetricRecord, "two"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-6)  # some are nearly 0, up to rounding
    index = ["--dataset", world.text.dataset, "--tokens", "2400", "--data", str(world.data), "--top-examples", "3"]
    # Index the same run, so that the indexes must be identical.
    assert mxd(["index", "whole", *index]) == 0
    kinds = (ExpertRecord, ExampleRecord, SequenceRecord, IndexRecord)
    alone = {kind: rows(world, kind, "whole") for kind in kinds}
    both = succeeding("index", "whole", *index, "--json")
    assert json.loads("".join(one.stdout for one in both))["tokens"] == 2400
    for kind in kinds:
        assert rows(world, kind, "whole") == alone[kind], kind


def test_sharded_experts_equal_a_single_process(world: World, flags_of_run: list[str]) -> None:
    succeeding("train", *flags_of_run, "--name", "spread", "--parallel", "experts")
    check_same_weights(world, "spread", "whole")
    # Each process wrote its own rows.
    spread, whole = (checkpoint_of(world, name) for name in ("spread", "whole"))
    assert len(list(spread.glob("layer-*-of-00002.safetensors"))) == 2
    moments = read_rows(spread / "optimizer.safetensors")
    for name, value in load_file(whole / "optimizer.safetensors").items():
        torch.testing.assert_close(moments[name], value, rtol=1e-3, atol=1e-5, msg=name)
    loaded = load_by_pytorch(spread, moments)
    assert all(torch.equal(moments[name], value) for name, value in loaded.items())


def load_by_pytorch(folder: Path, expected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors that torch.distributed.checkpoint reads from a folder of safetensors files."""
    checkpoint = import_module("torch.distributed.checkpoint")
    loaded = {name: torch.full_like(value, -1) for name, value in expected.items()}
    with warnings.catch_warnings(action="ignore"):  # that there is one process
        checkpoint.load(loaded, storage_reader=checkpoint.HuggingFaceStorageReader(str(folder)))
    return loaded


def stopping_early() -> None:
    """``mxd`` that is interrupted after seven steps, and in which only the main process can create runs."""
    if os.environ["RANK"] != "0":
        Run.create = None  # type: ignore[assignment, method-assign]
    log = TrainingRun.log_if_due

    def log_or_stop(run: TrainingRun) -> None:
        log(run)
        if run.trainer.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    TrainingRun.log_if_due = log_or_stop  # type: ignore[assignment, method-assign]
    main()


def test_sharded_experts_resume_with_more_processes_and_with_one(world: World, flags_of_run: list[str]) -> None:
    # A step of 12 sequences is divisible by 2 and 3.
    flags = [*flags_of_run, "--batch-tokens", "192", "--tokens", str(16 * 192), "--on-short-text", "repeat"]
    name = ["--name", "moved", "--parallel", "experts"]
    stopped = run_processes(stopping_early, "train", *flags, *name)
    folder = runs_folder(world.data) / "moved"
    assert checkpoint_of(world, "moved").name == "checkpoint-7", [one.stderr for one in stopped]
    assert len(Run.load("moved", world.data).layer.gate.weight) == 40
    shutil.copytree(folder, world.data / "kept")
    succeeding("train", *flags, *name, "--resume", processes=3)
    three = Run.load("moved", world.data).layer.state_dict()
    shutil.rmtree(folder)
    shutil.move(world.data / "kept", folder)
    assert mxd(["train", *flags, "--name", "moved", "--resume"]) == 0
    for key, value in Run.load("moved", world.data).layer.state_dict().items():
        torch.testing.assert_close(three[key], value, rtol=1e-4, atol=1e-5, msg=key)
    assert mxd(["train", *flags, "--name", "whole-192"]) == 0
    check_same_weights(world, "moved", "whole-192")


def test_a_sharded_language_model_trains_the_same_layer(world: World, flags_of_run: list[str]) -> None:
    succeeding("train", *flags_of_run, "--name", "shared", "--shard-model", "fsdp")
    check_same_weights(world, "shared", "whole")


def test_a_sharded_language_model_writes_the_same_cache(world: World, flags_of_run: list[str]) -> None:
    def words(name: str) -> list[str]:
        return ["train", *flags_of_run, "--name", name, "--cache", str(world.data / f"cache-{name}")]

    succeeding(*words("tp"), "--shard-model", "tp")
    assert mxd(words("alone")) == 0
    caches = [ActivationCache.open(world.data / f"cache-{name}", torch.device("cpu")) for name in ("tp", "alone")]
    shared, alone = caches
    assert (shared.manifest.parts, shared.tokens) == (2, alone.tokens)
    for index in range(alone.manifest.complete_buffers):
        for one, other in zip(shared.activations(1, index), alone.activations(1, index), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-4)


SWEEP = ("--layer", "2", "--method", "mxd,batch-topk-mxd,transcoder", "--parallel", "runs")
"""Added to the flags of a run: six runs, two of them of a method whose runs several processes cannot share."""


def sweep_without_averages() -> None:
    """``mxd`` without averages of gradients, in which one run of the second process diverges if its name says so."""
    LayerTrainer._join = None  # type: ignore[assignment, method-assign]
    train_step = LayerTrainer.train_step

    def broken(self: LayerTrainer, batch: MlpActivations) -> None:
        train_step(self, batch)
        if self.config.name == "broken-l2-transcoder" and self.step == 10:
            self.layer.get_parameter("output_bias").data.fill_(torch.inf)

    LayerTrainer.train_step = broken  # type: ignore[assignment, method-assign]
    main()


@pytest.mark.usefixtures("whole_sweep")
def test_each_process_trains_its_own_runs(world: World, flags_of_run: list[str]) -> None:
    flags = [*flags_of_run, *SWEEP]
    done = succeeding("train", *flags, "--name", "spread-l{layer}-{method}", "--json", entry=sweep_without_averages)
    names = [f"spread-l{layer}-{method}" for method in ("mxd", "batch-topk-mxd", "transcoder") for layer in (1, 2)]
    results = json.loads("".join(one.stdout for one in done))
    assert sorted(result["run"] for result in results) == sorted(names)
    for name in names:
        check_same_weights(world, name, name.replace("spread", "whole"))
        assert len(rows(world, MetricRecord, name)) == 6


@pytest.mark.usefixtures("whole_sweep")
def test_spread_runs_stop_with_a_diverged_one_and_resume(world: World, flags_of_run: list[str]) -> None:
    flags = [*flags_of_run, *SWEEP, "--name", "broken-l{layer}-{method}"]
    done = run_processes(sweep_without_averages, "train", *flags)
    messages = [line for one in done for line in one.stderr.splitlines() if line.startswith("mxd:")]
    assert len(messages) == 1 and "'broken-l2-transcoder' has diverged: the loss at step 12" in messages[0], messages
    stopped = [f"broken-l{layer}-{method}" for method in ("mxd", "batch-topk-mxd") for layer in (1, 2)]
    assert {checkpoint_of(world, name).name for name in stopped} == {"checkpoint-12"}
    flags[flags.index(SWEEP[3])] = "mxd,batch-topk-mxd"
    assert mxd(["train", *flags, "--resume"]) == 0
    for name in stopped:
        check_same_weights(world, name, name.replace("broken", "whole"))


def test_sharding_a_language_model_needs_several_processes(
    flags_of_run: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert mxd(["train", *flags_of_run, "--name", "alone", "--shard-model", "fsdp"]) == 2
    assert "needs several processes" in capsys.readouterr().err


def test_a_run_of_two_processes_resumes_with_one(world: World, flags_of_run: list[str]) -> None:
    flags_of_run = [*flags_of_run, "--on-short-text", "repeat", "--tokens", str(100 * 64)]
    folder = runs_folder(world.data) / "parts"
    with started_processes(main, "train", *flags_of_run, "--name", "parts") as processes:
        wait_for(lambda: list(folder.glob("checkpoint-*")))
        for process in processes:
            process.send_signal(signal.SIGTERM)
        errors = [process.communicate(SEVERAL_SECONDS)[1] for process in processes]
    assert not (folder / "layer.safetensors").is_file(), errors
    assert mxd(["train", *flags_of_run, "--name", "parts", "--resume"]) == 0
    assert mxd(["train", *flags_of_run, "--name", "whole-100"]) == 0
    # Rounding grows with the steps that two processes take before they stop: at most 98 instead of 23.
    world.check_same_weights("parts", "whole-100", rtol=1e-4, atol=1e-4)


def test_the_death_of_a_process_is_reported_and_the_checkpoint_is_intact(world: World, flags_of_run: list[str]) -> None:
    flags_of_run = [*flags_of_run, "--on-short-text", "repeat", "--tokens", str(100_000 * 64)]
    several = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", __name__]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-m", *several, "train", *flags_of_run, "--name", "killed"]
    with Popen(words, stderr=PIPE, text=True, env=environment, cwd=ROOT) as process:
        folder = runs_folder(world.data) / "killed"
        wait_for(lambda: list(folder.glob("checkpoint-*")))
        os.kill(second_of(process.pid), signal.SIGKILL)
        _, errors = process.communicate(timeout=SEVERAL_SECONDS)
    assert process.returncode != 0
    messages = [line for line in errors.splitlines() if line.startswith("mxd:")]
    told = "mxd: Process 0 of 2 stopped because process 1 ended without a message. Saved checkpoints are intact."
    assert messages == [told], errors
    run = Run.load("killed", world.data)
    assert not run.is_training
    assert checkpoints(run.folder)
    assert run.layer.num_parameters > 0
    assert not list(folder.glob("*.partial"))


def checkpoint_of(world: World, name: str) -> Path:
    return checkpoints(Run.load(name, world.data).folder)[0]


def second_of(parent: int) -> int:
    """Process id of rank 1 among the children of ``torchrun``."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"\0RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes():
            return int(child)
    raise AssertionError("no process with rank 1")


def test_an_error_of_all_processes_is_reported_once(world: World, flags_of_run: list[str]) -> None:
    done = run_processes(main, "train", *flags_of_run, "--name", "whole")
    assert [one.returncode for one in done] == [2, 2]
    (message,) = (line for one in done for line in one.stderr.splitlines() if line.startswith("mxd:"))
    assert message.endswith("of 2: Run 'whole' already exists. Use --resume to continue it or choose another --name.")


def impatient() -> None:
    """Take a process that has been silent for a second for dead."""
    distributed.SILENT_SECONDS, distributed.BEAT_SECONDS = 1.0, 0.1


def with_a_slow_database() -> None:
    """``mxd`` in which opening the database takes longer than the time limit of collectives."""
    opened = engine.open_database

    def slow(*inputs: Any, **named: Any) -> Engine:
        if os.environ["RANK"] == "0":
            time.sleep(6)
        return opened(*inputs, **named)

    engine.open_database = slow
    distributed.TIMEOUT = timedelta(seconds=5)
    main()


def test_the_others_wait_for_the_main_process_without_a_time_limit(world: World, flags_of_run: list[str]) -> None:
    cache = str(world.data / "cache")
    done = succeeding("train", *flags_of_run, "--name", "cached", "--cache", cache, entry=with_a_slow_database)
    assert not [line for one in done for line in one.stderr.splitlines() if "deprecated" in line]
    assert mxd(["train", *flags_of_run, "--name", "cached-alone", "--cache", cache]) == 0
    check_same_weights(world, "cached", "cached-alone")


def dying_between_buffers() -> None:
    """``mxd`` whose second process dies while it writes the second buffer of a cache."""
    write = activation_cache._write_parts

    def write_or_die(*inputs: Any, **named: Any) -> dict[str, str]:
        files = write(*inputs, **named)
        if inputs[2] == 1 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return files

    activation_cache._write_parts = write_or_die
    impatient()
    main()


def test_a_cache_survives_the_death_of_a_process(world: World, flags_of_run: list[str]) -> None:
    def words(name: str) -> list[str]:
        return ["train", *flags_of_run, "--name", name, "--cache", str(world.data / f"cache-{name}")]

    def manifest(name: str) -> CacheManifest:
        return ActivationCache.open(world.data / f"cache-{name}", torch.device("cpu")).manifest

    main_one, _ = run_processes(dying_between_buffers, *words("died"))
    assert "because process 1 ended without a message" in main_one.stderr
    assert (manifest("died").complete_buffers, len(manifest("died").files)) == (1, 2)
    assert mxd(words("died")) == 0
    succeeding(*words("survived"))
    assert manifest("died").files == manifest("survived").files
    check_same_weights(world, "died", "survived")


def failing_in_one_process() -> None:
    """Each process but the main one raises the error that its command line names; the main one waits for it."""
    kind = sys.argv[1]

    def wait() -> int:
        with init_process_group() as group:
            if not group.is_main:
                raise {"user": UserError, "bug": RuntimeError}[kind]("the socket timed out")
            group.barrier()
        return 0

    sys.exit(guarded(wait))


@pytest.mark.parametrize("kind", ["user", "bug"])
def test_only_the_process_that_failed_tells_why(kind: str) -> None:
    """The subject of an error does not depend on the words of its message."""
    waiting, failed = run_processes(failing_in_one_process, kind)
    assert waiting.returncode == 2
    assert "mxd:" not in waiting.stderr
    assert "Traceback" not in waiting.stderr
    if kind == "user":
        assert failed.returncode == 2
        assert failed.stderr.splitlines()[-1] == "mxd: Process 1 of 2: the socket timed out"
    else:
        assert "RuntimeError: the socket timed out\nProcess 1 of 2.\n" in failed.stderr


def test_a_failure_names_its_process_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    store = import_module("torch.distributed").HashStore()
    peers = [Peers(store, rank, 6) for rank in range(6)]
    assert peers[1].report("its disk is full")
    assert not peers[2].report("another")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found = [one.loss(RuntimeError("reset by peer")) for one in peers if one.rank != 1]
    assert [type(error) for error in found] == [SilentError, PeerLostError, SilentError, PeerLostError, SilentError]
    assert str(found[1]) == "Process 2 of 6 stopped because process 1 failed: its disk is full"
    with pytest.raises(PeerLostError, match="Process 4 of 6 stopped because process 1 failed: its disk is full"):
        peers[4].take_turn(list)


def test_an_error_is_its_own_process_s_while_the_others_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "SILENT_SECONDS", 0.8)
    monkeypatch.setattr(distributed, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(distributed, "BEAT_SECONDS", 0.02)
    store = import_module("torch.distributed").HashStore()
    main_one, one, dead = (Peers(store, rank, 3) for rank in range(3))
    with main_one.beating(), one.beating():
        with dead.beating():
            assert main_one.loss(RuntimeError("gloo: connection timeout")) is None
        error = main_one.loss(RuntimeError("bad shape"))
    assert isinstance(error, PeerLostError)
    assert str(error).startswith("Process 0 of 3 stopped because process 2 ended without a message.")
    alone = Peers(import_module("torch.distributed").HashStore(), 1, 2)
    with pytest.raises(PeerLostError, match="Process 1 of 2 stopped because process 0 ended without a message"):
        alone.take_turn(list)


def test_a_process_that_waits_for_its_turn_ends_soon_after_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "SILENT_SECONDS", 0.3)
    told: list[int] = []
    listening = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    waiting = Peers(import_module("torch.distributed").HashStore(), 1, 2)
    try:
        with distributed.setting_on_sigterm(waiting.told_to_stop):
            Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            with pytest.raises(PeerLostError, match="process 0 ended without a message"):
                waiting.take_turn(list)
    finally:
        restored = signal.signal(signal.SIGTERM, listening)
    assert told == [signal.SIGTERM], "the handler of before is called, too"
    assert callable(restored)
    restored(signal.SIGTERM, None)
    assert told == [signal.SIGTERM] * 2, "and it is back"


def test_a_step_that_cannot_be_divided_evenly(world: World) -> None:
    config: TrainConfig = world.config()
    with pytest.raises(UserError, match="multiple of 48"):
        next(batches(LiveActivations(world.language_model), StreamSpec.from_configs([config]), 0, ProcessGroup(0, 3)))


def test_auto_map_needs_one_process_per_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(UserError, match="nproc-per-node 1"):
        ProcessGroup(0, 2).device("auto-map")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert ProcessGroup(0, 2).device("auto-map") == "auto-map"


@pytest.mark.parametrize(
    ("kind", "requested", "expected"),
    [
        ("cuda", "auto", "cuda:1"),
        ("cuda", "cuda", "cuda:1"),
        ("xpu", "auto", "xpu:1"),
        ("cuda", "cpu", "cpu"),
        ("cuda", "cuda:0", "cuda:0"),
        ("mps", "auto", "cpu"),
        (None, "auto", "cpu"),
    ],
)
def test_each_process_has_its_own_device(
    kind: str | None, requested: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "accelerator", lambda: None if kind is None else torch.device(kind))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 1)
    assert ProcessGroup(1, 2).device(requested) == expected
    assert ProcessGroup().device(requested) == requested


@contextmanager
def meeting(monkeypatch: pytest.MonkeyPatch, kind: str | None, local_rank: int, processes: int) -> Iterator[None]:
    """Join processes of a machine with four devices of a kind; None: without one."""
    monkeypatch.setattr(distributed, "accelerator", lambda: None if kind is None else torch.device(kind))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    store = import_module("torch.distributed").HashStore()
    module = import_module("torch.distributed.rendezvous")  # the package has a function of the same name
    monkeypatch.setattr(module, "rendezvous", lambda _url: iter([(store, local_rank, processes)]))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    with init_process_group():
        yield


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("cuda", [3, "cpu:gloo,cuda:nccl"]), ("xpu", [3, "cpu:gloo,xpu:xccl"]), ("mps", ["gloo"]), (None, ["gloo"])],
)
def test_the_tensors_of_gpus_travel_through_their_own_backend(
    kind: str | None, expected: list[int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int | str] = []
    monkeypatch.setattr(torch.accelerator, "set_device_index", called.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **_rest: called.append(backend))
    with meeting(monkeypatch, kind, 3, 4):
        assert called == expected
    message = r"Too many processes: 8, but 4 GPUs\. Use 'torchrun --nproc-per-node 4'\."
    if kind == "cuda":
        with pytest.raises(UserError, match=message), meeting(monkeypatch, "cuda", 0, 8):
            raise AssertionError


if __name__ == "__main__":  # under torchrun
    impatient()
    main()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@given(items=st.lists(st.none() | st.integers()), depth=st.integers(1, 5), fails=st.booleans())
def test_items_and_errors_come_in_their_order(items: list[int | None], depth: int, fails: bool) -> None:
    def source() -> Iterator[int | None]:
        yield from items
        if fails:
            raise LookupError("the end")

    stream = prefetch(source(), depth)
    assert [next(stream) for _ in items] == items
    with pytest.raises(LookupError if fails else StopIteration):
        next(stream)
    assert threads() == []
    assert list(stream) == []


def test_at_most_depth_items_are_computed_ahead_until_the_consumer_stops() -> None:
    computed: list[int] = []
    fourth = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            computed.append(number)
            if number == 3:
                fourth.set()
            yield number

    stream = prefetch(items(), 3)
    assert next(stream) == 0
    assert fourth.wait(10)
    assert len(threads()) == 1
    stream.close()
    assert threads() == []
    assert computed == [0, 1, 2, 3]
