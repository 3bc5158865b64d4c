"""The command line: imports, output, exit codes, error messages, signals, completion and data types."""

import io
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from mxd.backend.cli.console import StopRequest
from mxd.backend.cli.main import main, run
from mxd.backend.cli.parser import command_class, command_from, guarded
from mxd.backend.cli.registry import COMMANDS
from mxd.backend.inference.worker import ModelWorker
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError
from mxd.trainer.language_model import loading
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import run_names
from mxd.trainer.utils.devices import DeviceMemory
from tests.backend.cli.conftest import Capture, output, rejected
from tests.helpers.processes import installed, run_processes

TEXT = "--dataset text.jsonl --tokens 512 --context-length 16"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train", "Missing LANGUAGE_MODEL, --layer, --dataset and --tokens. Run 'mxd train --help'"),
        (f"train none/such/folder {TEXT} --layer 1", "no folder none/such"),
        (f"train lm {TEXT} --layer 12", "There is no layer 12"),
        (f"train lm {TEXT} --layer 1 --dataset none.txt", "none.txt"),
        (f"train lm {TEXT} --layer one", "Invalid --layer: 'one'. Input should be a valid"),
        (f"train lm {TEXT} --layer 1 --tokens {'9' * 400}B", "Invalid --tokens: '999"),
        (f"train lm {TEXT} --layer 1 --k 2,2 --name mine", "2 runs have the name 'mine-k2'"),
        (f"train lm {TEXT} --layer 1 --method mxd,moe", "Unknown method 'moe'"),
        (f"train lm {TEXT} --layer 1 --name {{width}}", "Unknown placeholder in --name: {width}"),
        ("train --k", "Argument -k/--k: expected one argument"),
        ("train --learnign-rate 1", "Unknown option '--learnign-rate'. Did you mean '--learning-rate'?"),
        ("train lm --width 3", "Unknown option '--width'. Run 'mxd train --help'"),
        ("train lm more", "Unexpected argument 'more'. Quote text with spaces."),
        ("train lm --method hidden-mxd", "Method 'hidden-mxd' is experimental. Use 'mxd lab train'."),
        ("train --config text.jsonl", "Cannot read the config file text.jsonl"),
        ("stear", "Unknown command 'stear'. Did you mean 'steer'? Run 'mxd --help' for a list."),
        ("lab trains", "Unknown command 'trains'. Did you mean 'train'? Run 'mxd lab --help' for a list."),
        ("--json --data", "No command given. Run 'mxd --help' for a list."),
        ("experts none", "Unknown run 'none'. There are no runs yet."),
        ("steer none text --edit 12:more", "Invalid --edit: '12:more'. Write EXPERT:scale:FACTOR"),
        ("serve --port 70000", "Invalid --port: '70000'. Input should be less than or equal to 65535"),
        ("serve --host no.such.host.invalid", "Unknown host 'no.such.host.invalid'"),
        ("serve --port 0 --database nonsense", "Invalid database URL"),
        ("serve --port 0 --database sqlite:///text.jsonl", "Cannot open the database"),
    ],
)
def test_invalid_input_prints_one_line(workspace: Path, capsys: Capture, line: str, sentence: str) -> None:
    check_rejected(line, sentence, capsys)
    assert not run_names(workspace / "data")


EVALUATE, CIRCUIT = "evaluate --tokens 320", "circuit small --prompt 'the old fox' --device cpu"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"{EVALUATE} small --dataset text.jsonl", "small was trained on text.jsonl"),
        (f"{EVALUATE} small small --dataset held.txt", "named twice"),
        (f"{EVALUATE} b --dataset held.txt", "Unknown run 'b'. Run 'mxd runs' for a list."),
        (f"{EVALUATE} small --dataset held.txt", "has 12 tokens"),
        (f"{CIRCUIT} --out graph.html", "Supported file type: .json"),
        (f"{CIRCUIT} --target two", "is 3 tokens. Give one"),
        (f"{CIRCUIT} --nodes 0", "Invalid --nodes: '0'. Input should be greater than or equal to 1"),
        (f"{CIRCUIT} --against x", "needs exactly one --target"),
        (f"{CIRCUIT} --target-expert small", "Give RUN/NUMBER"),
    ],
)
def test_invalid_input_about_a_run_prints_one_line(trained: Path, capsys: Capture, line: str, sentence: str) -> None:
    (trained / "held.txt").write_text("held-out te")
    check_rejected(line, sentence, capsys)


def check_rejected(line: str, sentence: str, capsys: Capture) -> None:
    assert run(shlex.split(line)) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    last = seen.err.splitlines()[-1]
    assert last.startswith("mxd: ")
    assert sentence in last
    assert "Traceback" not in seen.err


def test_global_options_may_come_before_the_command(tmp_path: Path, capsys: Capture) -> None:
    assert output(capsys, "--json", "--data", str(tmp_path), "runs") == "[]\n"
    assert output(capsys, f"--data={tmp_path}", "token", "--json", "list") == "[]\n"


def test_reading_commands_create_no_database(workspace: Path, capsys: Capture) -> None:
    for words in (["runs"], ["experts", "x"], ["experts", "x", "1"], ["database", "check"], ["doctor", "--port", "0"]):
        run([*words, "--data", "empty"])
    assert not Path("empty").exists()


def test_a_port_in_use_is_reported_immediately(workspace: Path, capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = time.monotonic()
        assert f"Port {port} on 127.0.0.1 is in use" in rejected(capsys, "serve", "--port", str(port))
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("error", "amount"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB."),
            ": 2.50 GiB could not be allocated",
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), ""),
        (MemoryError(), ""),
    ],
)
def test_out_of_memory_is_one_line(capsys: Capture, error: Exception, amount: str) -> None:
    assert guarded(Mock(side_effect=error)) == 3
    message = capsys.readouterr().err
    assert message.startswith(f"mxd: Out of memory{amount}. Use smaller batches")
    assert message.count("\n") == 1


@pytest.mark.parametrize("line", sorted({line for name in COMMANDS for line in command_class(name).examples}))
def test_every_example_is_accepted(line: str) -> None:
    words = shlex.split(line.partition(" > ")[0])
    assert words[0] == "mxd"
    try:
        command_from(words[1:])
    except UserError as error:
        pytest.fail(str(error))


def test_one_of_several_processes_reports_a_wrong_command_line() -> None:
    def once(*words: str, processes: int) -> str:
        """The message that one of several processes printed. All ended with the same code."""
        done = run_processes(main, *words, processes=processes)
        assert [(one.returncode, one.stdout) for one in done] == [(2, "")] * processes
        (number,) = (number for number, one in enumerate(done) if one.stderr)
        prefix = f"mxd: Process {number} of {processes}: "
        assert done[number].stderr.startswith(prefix)
        return done[number].stderr.removeprefix(prefix).rstrip()

    assert once("stear", processes=3).startswith("Unknown command 'stear'. Did you mean 'steer'?")
    assert once("index", "none", *TEXT.split(), processes=3).startswith("Unknown run 'none'.")
    assert [name for name in COMMANDS if command_class(name).shares_work] == ["train", "lab train", "index"]
    assert once("evaluate", "my run", "--dataset", "a.jsonl", "--tokens", "1k", processes=2) == (
        "'mxd evaluate' needs a single process, but torchrun started 2. Run it without torchrun: "
        "mxd evaluate 'my run' --dataset a.jsonl --tokens 1k"
    )
    (alone,) = run_processes(main, "route", "none", "text", processes=1)
    assert alone.stderr.startswith("mxd: Unknown run 'none'.")


def test_the_first_signal_during_a_write_requests_a_stop_and_the_second_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting(io.RawIOBase):
        """A file that sends SIGTERM to its process on the first write."""

        def writable(self) -> bool:
            return True

        def write(self, content: Any) -> int:
            if not stop():
                signal.raise_signal(signal.SIGTERM)
            return len(content)

    stop, before = StopRequest(), signal.getsignal(signal.SIGTERM)
    with io.TextIOWrapper(io.BufferedWriter(Interrupting()), encoding="utf-8") as written, stop.listening():
        monkeypatch.setattr(sys, "stderr", written)
        assert not stop()
        written.write("Indexing\n")
        written.flush()
        assert stop()
        assert stop.exit_code == 143
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


def test_bash_completes(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "novel.txt").touch()
    (tmp_path / "mxd.bash").write_text(output(capsys, "--completion", "bash"))
    for line, offered in {
        "eval": {"evaluate", "evaluate-steering"},
        "train --met": {"--method"},
        "train --init e": {"examples"},
        "database ch": {"check"},
        "index --dataset nov": {"novel.txt"},
    }.items():
        places = f"COMP_WORDS=(mxd {line}); COMP_CWORD={len(line.split())}"
        asked = f'source mxd.bash; {places}; _shtab_mxd; printf "%s\\n" "${{COMPREPLY[@]}}"'
        answered = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert set(answered.stdout.split()) == offered


def test_a_closed_pipe_prints_no_traceback_and_completion_loads_no_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with installed("--completion", "bash", folder=tmp_path) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        imported = [line.rpartition("|")[::2] for line in process.stderr.read().splitlines()]
        assert {start[:12] for start, _ in imported} == {"import time:"}
        assert not {"torch", "transformers"} & {name.strip() for _, name in imported}
        assert process.wait() == 141


@pytest.fixture
def loaded(trained: Path, monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """Dtypes of the language models that are loaded from now on."""
    dtypes: list[torch.dtype] = []
    load = LanguageModel.load

    def recorded(*words: Any, **more: Any) -> LanguageModel:
        language_model = load(*words, **more)
        dtypes.append(language_model.dtype)
        return language_model

    monkeypatch.setattr(LanguageModel, "load", recorded)
    return dtypes


def test_language_models_are_loaded_in_the_dtype(loaded: list[torch.dtype], monkeypatch: pytest.MonkeyPatch) -> None:
    for line in ("route small 'the old fox'", "steer small 'the old fox' --edit 1:add:2 --max-tokens 2"):
        assert run(shlex.split(line)) == run([*shlex.split(line), "--dtype", "bfloat16"]) == 0
    assert loaded == [torch.float32, torch.bfloat16] * 2
    monkeypatch.setenv("MXD_DTYPE", "bfloat16")
    with closing(ModelWorker("lm", "cpu", 4, Settings().dtype)) as worker:
        assert worker.call(lambda language_model: language_model.dtype).result(30) == torch.bfloat16


def test_circuits_are_in_float32_if_that_fits(loaded: list[torch.dtype], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["circuit", "small", "--prompt", "the old fox"]
    monkeypatch.setattr(loading, "choose_dtype", lambda _device: torch.bfloat16)
    monkeypatch.setattr("mxd.trainer.language_model.model.choose_dtype", lambda _device: torch.bfloat16)
    weights = sum(weight.numel() for weight in loading.load_outline("lm").parameters())
    for free in (8 * weights, 8 * weights - 1):
        monkeypatch.setattr(loading, "device_memory", lambda _device, free=free: DeviceMemory(free, free))
        assert run(words) == 0
    assert run([*words, "--dtype", "bfloat16"]) == 0
    assert loaded == [torch.float32, torch.bfloat16, torch.bfloat16]


SLOW = ("numpy", "torch", "transformers", "fastapi", "starlette", "sqlalchemy", "sklearn", "scipy", "plotly", "pyarrow")
SLOW_TO_OVERLOOK = (*SLOW, "pydantic", "pydantic_settings", "asyncio", "mxd.backend.cli.commands.train")
SLOW_TO_SERVE = ("torch", "transformers", "sklearn", "scipy", "sympy", "plotly.graph_objs", "pyarrow", "datasets")
READ = "from mxd.backend.cli.main import run\ntry:\n    run({!r})\nexcept SystemExit:\n    pass"
LOADED = "import sys; print(*sorted({*%r} & sys.modules.keys()))"


@pytest.mark.parametrize(
    ("code", "slow"),
    [
        ("from mxd.backend.cli.main import run\nassert run(['--help']) == 0", SLOW_TO_OVERLOOK),
        *((READ.format(words), SLOW) for words in (["train", "--help"], ["serve", "--help"], ["train"])),
        ("import uvicorn, mxd.backend.api.app", SLOW_TO_SERVE),
    ],
)
def test_slow_packages_are_imported_only_when_needed(code: str, slow: tuple[str, ...]) -> None:
    words = [sys.executable, "-c", f"{code}\n{LOADED % (slow,)}"]
    finished = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert (finished.returncode, finished.stdout.splitlines()[-1:]) == (0, [""]), finished.stderr
