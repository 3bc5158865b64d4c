"""The command line: output, exit codes and error messages."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
import torch

from mxd.backend.cli.main import run
from mxd.backend.cli.runner import guarded
from tests.backend.cli.words import Capture, document


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train"], "Missing LANGUAGE_MODEL, --layer, --dataset and --tokens. Run 'mxd train --help'"),
        (
            ["train", "none/such/folder", "--layer", "1", "--dataset", "text.jsonl", "--tokens", "1k"],
            "no folder none/such",
        ),
        (["train", "lm", "--layer", "12", "--dataset", "text.jsonl", "--tokens", "1k"], "There is no layer 12"),
        (["train", "lm", "--layer", "1", "--dataset", "none.txt", "--tokens", "1k"], "none.txt"),
        (
            ["train", "lm", "--layer", "one", "--dataset", "text.jsonl", "--tokens", "1k"],
            "Invalid --layer: 'one'. Input should be a valid",
        ),
        (
            ["train", "lm", "--layer", "1", "--dataset", "text.jsonl", "--tokens", "some"],
            "Invalid --tokens: 'some'. Input should be a valid",
        ),
        (
            ["train", "lm", "--layer", "1", "--dataset", "text.jsonl", "--tokens", "9" * 400 + "B"],
            "Invalid --tokens: '999",
        ),
        (["train", "lm", "--k", "0"], "Missing --layer, --dataset and --tokens"),
        (["train", "lm", "--width", "3"], "Unknown option '--width'. Run 'mxd train --help'"),
        (["train", "--config", "none.toml"], "Cannot read the config file none.toml"),
        (["train", "--config", "text.jsonl"], "Cannot read the config file text.jsonl"),
        (["stear"], "Unknown command 'stear'. Did you mean 'steer'? Run 'mxd --help' for a list."),
        (["lab", "trains"], "Unknown command 'trains'. Did you mean 'train'? Run 'mxd lab --help' for a list."),
        (["--json", "--data"], "No command given. Run 'mxd --help' for a list."),
        (["--config", "a.toml", "train"], "Cannot read the config file a.toml"),
        (["train", "--learnign-rate", "1"], "Unknown option '--learnign-rate'. Did you mean '--learning-rate'?"),
        (["train", "lm", "more"], "Unexpected argument 'more'. Quote text with spaces."),
        (["train", "lm", "--method", "hidden-mxd"], "Method 'hidden-mxd' is experimental. Use 'mxd lab train'."),
        (["train", "lm", "--method", "mdx"], "Unknown method 'mdx'. Did you mean 'mxd'?"),
        (["train", "--k"], "Argument -k/--k: expected one argument"),
        (["experts", "none"], "Unknown run 'none'. There are no runs yet."),
        (["index", "none", "--dataset", "text.jsonl", "--tokens", "1k"], "Unknown run 'none'."),
        (["route", "none", "text"], "Unknown run 'none'."),
        (["steer", "none", "text", "--edit", "12:more"], "Invalid --edit: '12:more'. Write EXPERT:scale:FACTOR"),
        (["serve", "--port", "70000"], "Invalid --port: '70000'. Input should be less than or equal to 65535"),
        (["serve", "--host", "no.such.host.invalid"], "Unknown host 'no.such.host.invalid'"),
        (["serve", "--port", "0", "--database", "sqlite:////dev/null/x"], "/dev/null/x"),
        (["serve", "--port", "0", "--database", "nonsense"], "Invalid database URL"),
    ],
)
def test_invalid_input_prints_one_line(workspace: Path, capsys: Capture, words: list[str], sentence: str) -> None:
    assert run(words) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    last = seen.err.splitlines()[-1]
    assert last.startswith("mxd: ")
    assert sentence in last
    assert "Traceback" not in seen.err


def test_environment_variables_named_like_commands_are_ignored(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("TRAIN", "{")
    monkeypatch.setenv("train", "1")
    assert run(["train"]) == 2
    assert "Missing LANGUAGE_MODEL" in capsys.readouterr().err


def test_global_options_may_come_before_the_command(tmp_path: Path, capsys: Capture) -> None:
    assert run(["--json", "--data", str(tmp_path), "runs"]) == 0
    assert document(capsys) == []
    assert run([f"--data={tmp_path}", "token", "--json", "list"]) == 0
    assert document(capsys) == []


def test_reading_commands_create_no_database(workspace: Path, capsys: Capture) -> None:
    for words in (["runs"], ["experts", "x"], ["experts", "x", "1"], ["database", "check"], ["doctor", "--port", "0"]):
        run([*words, "--data", "empty"])
    assert not Path("empty").exists()


def test_a_port_in_use_is_reported_immediately(workspace: Path, capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = time.monotonic()
        assert run(["serve", "--port", str(port)]) == 2
    assert f"Port {port} on 127.0.0.1 is in use" in capsys.readouterr().err
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("error", "amount"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has 8 GiB"),
            ": 2.50 GiB could not be allocated",
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), ""),
        (MemoryError(), ""),
    ],
)
def test_out_of_memory_is_one_line(capsys: Capture, error: Exception, amount: str) -> None:
    def work() -> int:
        raise error

    assert guarded(work) == 3
    message = capsys.readouterr().err
    assert message.startswith(f"mxd: Out of memory{amount}. Use smaller batches")
    assert message.count("\n") == 1


def test_a_folder_hides_no_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert run(["train", "--config", "gpt2"]) == 2
    assert "Missing --dataset." in capsys.readouterr().err
