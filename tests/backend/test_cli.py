"""The command line: what it prints where, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from backend import notes
from backend.cli import run
from backend.commands import demo
from backend.commands.console import ProgressLines, StopRequest, duration
from backend.commands.serve import ServeCommand
from backend.commands.steer import parse_edit
from backend.commands.train import TrainCommand
from backend.database import open_database, reading
from backend.queries.runs import list_runs
from backend.sample import SESSIONS_FILE
from backend.sessions import sessions_of
from backend.settings import Settings
from tests.language_models import saved_language_model
from tests.runs import small_world
from trainer.config import SAMPLE, CollapseConfig, IndexConfig, OptimizerConfig, TextConfig, TrainConfig
from trainer.errors import UserError
from trainer.precision import has_bfloat16_units
from trainer.run import Run
from trainer.store import sqlite_url, writing

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with text, a language model and data, in which commands run."""
    small_world(tmp_path).store.dispose()
    saved_language_model(tmp_path / "lm")
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train_words(*more: str) -> list[str]:
    """A command line that fits a run of 24 steps."""
    fixed = "train lm --layer 1 --text text.jsonl --tokens 1536 --num-experts 40 --k 4 --context 16"
    return [*fixed.split(), "--batch", "64", "--window", "512", "--log-every", "4", *more]


def document(capsys: Capture) -> Any:
    """The one JSON document on stdout."""
    return json.loads(capsys.readouterr().out)


def test_evaluating(place: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "a")) == 0
    words = train_words("--name", "b")
    words[words.index("--layer") + 1] = "2"
    assert run(words) == 0
    capsys.readouterr()
    lines = [f'{{"text": "held out {number} the old fox sang"}}' for number in range(40)]
    (place / "held.jsonl").write_text("\n".join(lines))
    (place / "other.txt").write_text("dreizehn alte Hunde. " * 60)
    words = ["evaluate", "a", "b", "--text", "held.jsonl", "--tokens", "320", "--resamples", "100"]
    assert run([*words, "--together", "--other-text", "other.txt", "--json"]) == 0
    first, second, both = document(capsys)
    wanted = {"run", "method", "num_experts", "k", "parameters", "ce_original", "ce_replaced", "ce_zeroed", "kl", "l0"}
    wanted |= {"ce_mean_ablated", "delta_ce", "normalised_mse", "variance_explained", "dead_share", "routing_share"}
    assert first.keys() >= wanted
    assert first["delta_ce"].keys() == {"value", "low", "high"}
    assert first["shared_expert"].keys() >= {"share", "delta_ce_without"}
    assert (first["run"], second["run"], both["run"]) == ("a", "b", "a + b")
    assert first["other_text"]["text"] == "other.txt"
    assert run([*words, "--together", "--other-text", "other.txt", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == [first, second, both]
    assert "Evaluating" not in printed.err, "what was measured before is taken from the store"
    assert run(words) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "run"
    assert [row.split()[0] for row in rows[:2]] == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["evaluate", "a", "--text", "text.jsonl", "--tokens", "320"], "was fitted on text.jsonl"),
        (["evaluate", "a", "a", "--text", "held.txt", "--tokens", "320"], "named twice"),
        (["evaluate", "b", "--text", "held.txt", "--tokens", "320"], "There is no run b"),
        (["evaluate", "a", "--text", "held.txt", "--tokens", "320"], "has 12 tokens"),
    ],
)
def test_what_cannot_be_evaluated(place: Path, capsys: Capture, words: list[str], sentence: str) -> None:
    assert run(train_words("--name", "a")) == 0
    (place / "held.txt").write_text("held-out te")
    capsys.readouterr()
    assert run(words) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.out == ""


def test_the_whole_way(place: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--json")) == 0
    trained = document(capsys)
    assert trained.keys() >= {"run", "tokens", "normalised_mse", "dead_share", "tokens_per_second"}
    assert (trained["run"], trained["tokens"], trained["status"]) == ("small", 1536, "finished")

    assert run(["index", "small", "--text", "text.jsonl", "--tokens", "2k", "--json"]) == 0
    indexed = document(capsys)
    assert indexed["run"] == "small"
    assert min(indexed["contexts"], indexed["experts_active"]) > 0
    assert indexed["tokens"] % 16 == 0, "the run's own context is taken"

    assert run(["runs", "--json"]) == 0
    (listed,) = document(capsys)
    assert (listed["name"], listed["status"], listed["indexed_tokens"]) == ("small", "finished", indexed["tokens"])
    assert run(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"small  finished  {place / 'lm'}")

    assert run(["route", "small", "the fox", "--json"]) == 0
    routed = document(capsys)
    assert "".join(token["text"] for token in routed["tokens"][1:]) == "the fox"
    assert all(0 < len(token["experts"]) <= 4 for token in routed["tokens"])
    assert run(["route", "small", "the fox", "--top", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8

    words = ["steer", "small", "the fox", "--edit", "12:scale:3", "--edit", "30:off", "--max-tokens", "5"]
    assert run([*words, "--temperature", "0", "--json"]) == 0
    steered = document(capsys)
    assert steered["default"]["tokens"] <= 5
    assert steered["steered"].keys() >= {"text", "reason", "kl"}


def test_a_run_is_used_from_any_folder(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(train_words("--name", "small")) == 0
    words = ["steer", "small", "the", "--edit", "12:add:1", "--max-tokens", "2", "--json"]
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    capsys.readouterr()
    assert run(words) == 0
    assert "99th percentile of expert 12 is not known" in capsys.readouterr().err
    Run.load("small", place / "data").write_units({12: 2.5})
    assert run(words) == 0
    assert "not known" not in capsys.readouterr().err


def test_a_run_that_failed_for_its_text_gives_its_name_back(place: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--text", "missing.jsonl")) == 2
    assert run(train_words("--name", "small", "--tokens", "90M")) == 2
    capsys.readouterr()
    assert run(train_words("--name", "small", "--json")) == 0
    assert document(capsys)["status"] == "finished"


def test_the_shipped_run_is_found_by_its_name(place: Path) -> None:
    assert Run.load("demo-l3-k16", place / "data").folder == SAMPLE / "runs" / "demo-l3-k16"


def test_a_run_is_named_for_what_it_is(place: Path, capsys: Capture) -> None:
    assert run(train_words("--json")) == 0
    assert document(capsys)["run"] == "lm-l1-k4"
    assert run(train_words()) == 2
    assert "The run lm-l1-k4 exists; go on with --resume" in capsys.readouterr().err


def test_resuming_needs_the_name_alone(place: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--seed", "3", "--resume")) == 0
    capsys.readouterr()
    assert run(["train", "--name", "small", "--resume", "--json"]) == 0
    assert document(capsys)["tokens"] == 1536
    assert Run.load("small", place / "data").config.seed == 3
    assert run(["train", "--name", "small", "--resume", "--seed", "4"]) == 2
    assert "started with another seed" in capsys.readouterr().err


def test_a_run_keeps_the_numbers_that_its_language_model_was_read_in(place: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "half", "--dtype", "bfloat16")) == 0
    assert ("no units" in capsys.readouterr().err) is not has_bfloat16_units()
    assert Run.load("half", place / "data").config.language_model_dtype == "bfloat16"
    assert run(["train", "--name", "half", "--resume"]) == 0
    capsys.readouterr()
    assert run(["train", "--name", "half", "--resume", "--dtype", "float32"]) == 2
    assert "started with another language_model_dtype" in capsys.readouterr().err


def test_settings_come_from_a_file_and_flags_go_before_it(place: Path, capsys: Capture) -> None:
    settings = {"language-model": "lm", "layer": 9, "text": "text.jsonl", "tokens": "1536", "num-experts": 40}
    settings |= {"context": 16, "batch": 64, "window": 512, "k": 3, "learning_rate": 0.02}
    Path("fit.json").write_text(json.dumps(settings))
    Path("fit.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    for file in ("fit.json", "fit.toml"):
        name = Path(file).suffix[1:]
        assert run(["train", "--config", file, "--layer", "1", "--name", name, "--json"]) == 0
        assert document(capsys)["run"] == name
        config = Run.load(name, place / "data").config
        assert (config.layer, config.k, config.optimizer.learning_rate) == (1, 3, 0.02)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train"], "LANGUAGE_MODEL, --layer, --text, --tokens must be given"),
        (
            ["train", "none/such/folder", "--layer", "1", "--text", "text.jsonl", "--tokens", "1k"],
            "no folder none/such",
        ),
        (["train", "lm", "--layer", "12", "--text", "text.jsonl", "--tokens", "1k"], "there is no layer 12"),
        (["train", "lm", "--layer", "1", "--text", "none.txt", "--tokens", "1k"], "none.txt"),
        (
            ["train", "lm", "--layer", "one", "--text", "text.jsonl", "--tokens", "1k"],
            "--layer: Input should be a valid",
        ),
        (
            ["train", "lm", "--layer", "1", "--text", "text.jsonl", "--tokens", "some"],
            "--tokens: Input should be a valid",
        ),
        (["train", "lm", "--k", "0"], "--k: Input should be greater than 0"),
        (["train", "lm", "--width", "3"], "unrecognized arguments: --width 3"),
        (["train", "--config", "none.toml"], "none.toml cannot be read"),
        (["train", "--config", "text.jsonl"], "text.jsonl cannot be read"),
        (["fit"], "fit is no command; begin with one that mxd --help lists"),
        (["--config", "a.toml", "train"], "--config is no command; begin with one"),
        (["index", "none", "--text", "text.jsonl", "--tokens", "1k"], "There is no run none"),
        (["route", "none", "text"], "There is no run none"),
        (["steer", "none", "text", "--edit", "12:more"], "The edit 12:more cannot be read"),
        (["serve", "--port", "70000"], "--port: Input should be less than or equal to 65535"),
        (["serve", "--host", "no.such.host.invalid"], "no.such.host.invalid is no address of this machine"),
        (["serve", "--port", "0", "--store", "sqlite:////dev/null/x"], "/dev/null/x"),
        (["serve", "--port", "0", "--store", "nonsense"], "The store's URL cannot be read"),
    ],
)
def test_bad_input_is_one_line(place: Path, capsys: Capture, words: list[str], sentence: str) -> None:
    assert run(words) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    last = seen.err.splitlines()[-1]
    assert last.startswith("mxd: ")
    assert sentence in last
    assert "Traceback" not in seen.err


def test_a_variable_named_like_a_command_is_no_setting(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("TRAIN", "{")
    monkeypatch.setenv("train", "1")
    assert run(["train"]) == 2
    assert "must be given" in capsys.readouterr().err


def test_flags_and_settings_have_the_same_defaults() -> None:
    for config in (TrainConfig, TextConfig, OptimizerConfig, CollapseConfig):
        for name, field in config.model_fields.items():
            if not field.is_required() and name in TrainCommand.model_fields and name not in ("num_experts", "gate"):
                assert TrainCommand.model_fields[name].default in (field.default, (field.default,)), name
    rest = {"optimizer", "collapse", "origin", "language_model_dtype", "began_as", "next_token_weight", "protected"}
    assert TrainConfig.model_fields.keys() - TrainCommand.model_fields.keys() == rest
    assert Settings.model_fields.keys() <= ServeCommand.model_fields.keys()
    assert IndexConfig.model_fields.keys() <= TrainCommand.model_fields.keys() | {"top", "per_interval", "top_tokens"}


@pytest.mark.parametrize("word", ["", "x:off", "3", "3:", "3:scale:", "3:scale:x", "-1:off", "3:add:nan", "3:add:1:2"])
def test_edits_that_are_none(word: str) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        parse_edit(word)


def test_edits_are_read_as_they_are_written() -> None:
    assert parse_edit("12:scale:3").model_dump(exclude_none=True) == {"expert": 12, "mode": "scale", "strength": 3.0}
    assert parse_edit("40:off").mode == "off"


def test_progress_lines_are_few_and_the_last_one_comes(capsys: Capture) -> None:
    lines = ProgressLines("Fitting", "tokens")
    for done in range(0, 1001, 10):
        lines(done, 1000, "normalised MSE 0.5")
    seen = capsys.readouterr().err.splitlines()
    assert len(seen) == 2
    assert seen[-1] == "Fitting: 1,000 of 1,000 tokens, normalised MSE 0.5"
    assert (duration(59.6), duration(3723)) == ("1:00", "1:02:03")


def test_the_first_interrupt_asks_and_the_second_ends(capsys: Capture) -> None:
    stop = StopRequest()
    before = signal.getsignal(signal.SIGTERM)
    with stop.listening():
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        assert stop.exit_code == 143
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_taken_port_is_said_at_once(place: Path, capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = time.monotonic()
        assert run(["serve", "--port", str(port)]) == 2
    assert f"Port {port} on 127.0.0.1 is taken" in capsys.readouterr().err
    assert time.monotonic() - started < 2


def test_a_run_with_labels_is_removed_on_a_second_word_only(place: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small")) == 0
    engine = open_database(sqlite_url(place / "data"))
    with writing(engine) as session:
        notes.set_label(session, "small", 3, "Foxes")
    engine.dispose()
    capsys.readouterr()
    assert run(["remove", "small"]) == 2
    assert "add --with-labels" in capsys.readouterr().err
    assert run(["remove", "small", "--with-labels", "--json"]) == 0
    assert document(capsys) == {"run": "small", "labels_and_notes": 1}
    assert run(["runs", "--json"]) == 0
    assert document(capsys) == []
    assert run(["remove", "small"]) == 2
    assert "There is no run small" in capsys.readouterr().err


def test_the_sample_is_indexed_once(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(train_words("--name", "small")) == 0
    sample = place / "data"
    (place / "text.jsonl").rename(sample / "text.jsonl")
    (sample / "index.json").write_text(json.dumps({"text": {"text": "text.jsonl", "context": 16}, "tokens": 1000}))
    shipped = {name: {"prompt": "the", "edits": [{"expert": 3, "mode": "add"}]} for name in ("One", "Other")}
    (sample / SESSIONS_FILE).write_text(json.dumps({"small": shipped}))
    served = []
    monkeypatch.setattr(demo, "serve", lambda settings, when_ready: served.append(settings))
    for _ in range(2):
        assert run(["demo", "--data", str(sample), "--port", "0"]) == 0
    (first, second) = served
    assert first == second
    assert capsys.readouterr().err.count("Indexing small: 992 of 992 tokens, writing to the store") == 1
    engine = open_database(first.store_url)
    with reading(engine) as session:
        (found,) = list_runs(session, lambda _: None).runs
        assert [kept.name for kept in sessions_of(session, "small")] == ["One", "Other"]
    engine.dispose()
    assert (found.name, found.status, found.indexed_tokens) == ("small", "finished", 992)


def test_without_a_sample_the_demo_says_so(place: Path, capsys: Capture) -> None:
    assert run(["demo", "--data", "data"]) == 2
    assert "The sample is not in data" in capsys.readouterr().err
