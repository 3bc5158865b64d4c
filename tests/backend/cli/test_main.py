"""The command line: output, exit codes and error messages."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mxd.backend.cli.commands import demo
from mxd.backend.cli.commands.steer import parse_edit
from mxd.backend.cli.console import ProgressLines, StopRequest, duration
from mxd.backend.cli.main import run
from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import open_database, reading
from mxd.backend.database.steering_sessions import sessions_of
from mxd.backend.queries.runs import list_runs
from mxd.trainer.config import SAMPLE
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.run import Run, run_names
from mxd.trainer.training.planning.dtypes import has_bfloat16_units
from tests.helpers.demo import TEST_DEMO
from tests.helpers.language_models import saved_language_model
from tests.helpers.runs import small_world

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with text, a language model and a data folder."""
    small_world(tmp_path).database.dispose()
    saved_language_model(tmp_path / "lm")
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train_words(*more: str) -> list[str]:
    """Return a command line that trains a run of 24 steps."""
    fixed = "train lm --layer 1 --dataset text.jsonl --tokens 1536 --num-experts 40 --k 4 --context-length 16"
    return [*fixed.split(), "--batch-tokens", "64", "--buffer-tokens", "512", "--log-every", "4", *more]


def document(capsys: Capture) -> Any:
    """Return the JSON document on stdout."""
    return json.loads(capsys.readouterr().out)


def test_evaluate(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "a")) == 0
    words = train_words("--name", "b")
    words[words.index("--layer") + 1] = "2"
    assert run(words) == 0
    capsys.readouterr()
    lines = [f'{{"text": "held out {number} the old fox sang"}}' for number in range(40)]
    (workspace / "held.jsonl").write_text("\n".join(lines))
    (workspace / "other.txt").write_text("dreizehn alte Hunde. " * 60)
    words = ["evaluate", "a", "b", "--dataset", "held.jsonl", "--tokens", "320", "--resamples", "100"]
    assert run([*words, "--together", "--other-dataset", "other.txt", "--json"]) == 0
    first, second, both = document(capsys)
    wanted = {"run", "method", "num_experts", "k", "parameters", "ce_original", "ce_replaced", "ce_zeroed", "kl", "l0"}
    wanted |= {
        "ce_mean_ablated",
        "loss_increase",
        "normalized_mse",
        "variance_explained",
        "dead_share",
        "routing_share",
    }
    assert first.keys() >= wanted
    assert first["loss_increase"].keys() == {"value", "low", "high"}
    assert first["shared_expert"].keys() >= {"loss_increase_without"}
    assert (first["run"], second["run"], both["run"]) == ("a", "b", "a + b")
    assert first["other_dataset"]["text"] == "other.txt"
    assert run([*words, "--together", "--other-dataset", "other.txt", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == [first, second, both]
    assert "Evaluating" not in printed.err, "earlier results are cached in the database"
    assert run(words) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "run"
    assert [row.split()[0] for row in rows[:2]] == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["evaluate", "a", "--dataset", "text.jsonl", "--tokens", "320"], "a was trained on text.jsonl"),
        (["evaluate", "a", "a", "--dataset", "held.txt", "--tokens", "320"], "named twice"),
        (["evaluate", "b", "--dataset", "held.txt", "--tokens", "320"], "Unknown run 'b'. Run 'mxd runs' for a list."),
        (["evaluate", "a", "--dataset", "held.txt", "--tokens", "320"], "has 12 tokens"),
    ],
)
def test_evaluate_rejects_unusable_runs_and_text(
    workspace: Path, capsys: Capture, words: list[str], sentence: str
) -> None:
    assert run(train_words("--name", "a")) == 0
    (workspace / "held.txt").write_text("held-out te")
    capsys.readouterr()
    assert run(words) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.out == ""


def test_train_index_explore_and_steer(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--json")) == 0
    trained = document(capsys)
    assert trained.keys() >= {"run", "tokens", "normalized_mse", "dead_share", "tokens_per_second"}
    assert (trained["run"], trained["tokens"], trained["status"]) == ("small", 1536, "finished")

    assert run(["index", "small", "--dataset", "text.jsonl", "--tokens", "2k", "--json"]) == 0
    indexed = document(capsys)
    assert indexed["run"] == "small"
    assert min(indexed["examples"], indexed["active_experts"]) > 0
    assert indexed["tokens"] % 16 == 0, "the run's context length is used"

    assert run(["runs", "--json"]) == 0
    (listed,) = document(capsys)
    assert (listed["name"], listed["status"], listed["indexed_tokens"]) == ("small", "finished", indexed["tokens"])
    assert run(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"small  finished  {workspace / 'lm'}")

    assert run(["experts", "small", "--sort", "density", "--limit", "3", "--json"]) == 0
    listed_experts = document(capsys)
    densities = [row["density"] for row in listed_experts["experts"]]
    assert (len(densities), densities, listed_experts["total"]) == (3, sorted(densities, reverse=True), 40)
    strongest = listed_experts["experts"][0]["expert"]
    assert run(["experts", "small", "--search", "fox"]) == 0
    assert "matching experts shown" in capsys.readouterr().out
    assert run(["expert", "small", str(strongest), "--examples", "2", "--json"]) == 0
    shown = document(capsys)
    assert (shown["row"]["expert"], len(shown["examples"])) == (strongest, 2)
    assert run(["expert", "small", str(strongest)]) == 0
    assert capsys.readouterr().out.startswith(f"expert {strongest}: ")
    assert run(["expert", "small", "9999"]) == 2
    assert "Unknown expert 9999. Run 'small' has experts 0 to 39." in capsys.readouterr().err

    assert run(["route", "small", "the fox", "--json"]) == 0
    routed = document(capsys)
    assert "".join(token["text"] for token in routed["tokens"][1:]) == "the fox"
    assert all(0 < len(token["experts"]) <= 4 for token in routed["tokens"])
    assert run(["route", "small", "the fox", "--top", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8

    words = ["steer", "small", "the fox", "--edit", "12:scale:3", "--edit", "30:ablate", "--max-tokens", "5"]
    assert run([*words, "--temperature", "0", "--json"]) == 0
    steered = document(capsys)
    assert len(steered["baseline"][0]["tokens"]) <= 5
    assert steered["steered"][0].keys() == {"text", "reason", "tokens"}


def test_a_run_is_used_from_any_folder(workspace: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(train_words("--name", "small")) == 0
    words = ["steer", "small", "the", "--edit", "12:add:1", "--max-tokens", "2", "--json"]
    elsewhere = workspace / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    capsys.readouterr()
    assert run(words) == 0
    assert "99th percentile of expert 12 is unknown" in capsys.readouterr().err
    Run.load("small", workspace / "data").write_units({12: 2.5})
    assert run(words) == 0
    assert "is unknown" not in capsys.readouterr().err


def test_the_name_of_a_run_is_free_after_its_text_was_rejected(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--dataset", "missing.jsonl")) == 2
    assert run(train_words("--name", "small", "--tokens", "90M")) == 2
    capsys.readouterr()
    assert run(train_words("--name", "small", "--json")) == 0
    assert document(capsys)["status"] == "finished"


def test_the_demo_run_is_found_by_its_name(workspace: Path) -> None:
    name = run_names(SAMPLE)[0]
    assert Run.load(name, workspace / "data").folder == SAMPLE / "runs" / name


def test_default_run_names(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--json")) == 0
    assert document(capsys)["run"] == "lm-l1-k4"
    assert run(train_words()) == 2
    assert "Run 'lm-l1-k4' already exists. Use --resume" in capsys.readouterr().err


def test_resuming_requires_only_the_name(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "small", "--seed", "3", "--resume")) == 0
    capsys.readouterr()
    assert run(["train", "--name", "small", "--resume", "--json"]) == 0
    assert document(capsys)["tokens"] == 1536
    assert Run.load("small", workspace / "data").config.seed == 3
    assert run(["train", "--name", "small", "--resume", "--seed", "4"]) == 2
    assert "started with another seed" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_dtype(workspace: Path, capsys: Capture) -> None:
    assert run(train_words("--name", "half", "--dtype", "bfloat16")) == 0
    assert ("no native support" in capsys.readouterr().err) is not has_bfloat16_units()
    assert Run.load("half", workspace / "data").config.language_model_dtype == "bfloat16"
    assert run(["train", "--name", "half", "--resume"]) == 0
    capsys.readouterr()
    assert run(["train", "--name", "half", "--resume", "--dtype", "float32"]) == 2
    assert "started with another language_model_dtype" in capsys.readouterr().err


def test_flags_take_precedence_over_the_config_file(workspace: Path, capsys: Capture) -> None:
    settings = {"language-model": "lm", "layer": 9, "dataset": "text.jsonl", "tokens": "1536", "num-experts": 40}
    settings |= {"context_length": 16, "batch_tokens": 64, "buffer_tokens": 512, "k": 3, "learning_rate": 0.02}
    Path("fit.json").write_text(json.dumps(settings))
    Path("fit.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    for file in ("fit.json", "fit.toml"):
        name = Path(file).suffix[1:]
        assert run(["train", "--config", file, "--layer", "1", "--name", name, "--json"]) == 0
        assert document(capsys)["run"] == name
        config = Run.load(name, workspace / "data").config
        assert (config.layer, config.k, config.optimizer.learning_rate) == (1, 3, 0.02)


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
        (["train", "lm", "--k", "0"], "Missing --layer, --dataset and --tokens"),
        (["train", "lm", "--width", "3"], "Unknown option '--width'. Run 'mxd train --help'"),
        (["train", "--config", "none.toml"], "Cannot read the config file none.toml"),
        (["train", "--config", "text.jsonl"], "Cannot read the config file text.jsonl"),
        (["stear"], "Unknown command 'stear'. Did you mean 'steer'? Run 'mxd --help' for a list."),
        (["database", "chek"], "Unknown command 'chek'. Did you mean 'check'? Run 'mxd database --help' for a list."),
        (["--json", "--data"], "No command given. Run 'mxd --help' for a list."),
        (["--config", "a.toml", "train"], "Cannot read the config file a.toml"),
        (["train", "--learnign-rate", "1"], "Unknown option '--learnign-rate'. Did you mean '--learning-rate'?"),
        (["train", "lm", "more"], "Unexpected argument 'more'. Quote text with spaces."),
        (["train", "lm", "--method", "peer"], "Method 'peer' is experimental. Use 'mxd lab train'."),
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


def test_config_files_name_unknown_options(workspace: Path, capsys: Capture) -> None:
    Path("settings.toml").write_text("leyer = 1")
    assert run(["train", "--config", "settings.toml"]) == 2
    assert "Unknown option 'leyer' in settings.toml. Did you mean 'layer'?" in capsys.readouterr().err


def test_global_options_may_come_before_the_command(tmp_path: Path, capsys: Capture) -> None:
    assert run(["--json", "--data", str(tmp_path), "runs"]) == 0
    assert document(capsys) == []
    assert run([f"--data={tmp_path}", "token", "--json", "list"]) == 0
    assert document(capsys) == []


def test_version_and_help(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    printed = capsys.readouterr().out
    assert [name in printed for name in ("mxd-explorer ", "Python ", "torch ", "transformers ")] == [True] * 4
    assert run([]) == run(["--help"]) == 0
    assert capsys.readouterr().out.count("Share and maintain:") == 2
    assert run(["database"]) == run(["database", "--help"]) == 0
    assert "reclaim the disk space" in capsys.readouterr().out


def test_reading_commands_create_no_database(workspace: Path, capsys: Capture) -> None:
    for words in (["runs"], ["experts", "x"], ["expert", "x", "1"], ["database", "check"], ["doctor", "--port", "0"]):
        run([*words, "--data", "empty"])
    assert not Path("empty").exists()


@pytest.mark.parametrize(
    "word", ["", "x:ablate", "3:off", "3", "3:", "3:scale:", "3:scale:x", "-1:ablate", "3:add:nan", "3:add:1:2"]
)
def test_invalid_edits(word: str) -> None:
    with pytest.raises(UserError, match="Invalid --edit"):
        parse_edit(word)


def test_edits() -> None:
    assert parse_edit("12:scale:3").model_dump(exclude_none=True) == {"expert": 12, "mode": "scale", "strength": 3.0}
    assert parse_edit("40:ablate").mode == "ablate"


def test_progress_prints_the_first_and_the_last_line(capsys: Capture) -> None:
    lines = ProgressLines("Training", "tokens")
    for done in range(0, 1001, 10):
        lines(done, 1000, "normalised MSE 0.5")
    seen = capsys.readouterr().err.splitlines()
    assert len(seen) == 2
    assert seen[-1] == "Training: 1,000 of 1,000 tokens, normalised MSE 0.5"
    assert (duration(59.6), duration(3723)) == ("1:00", "1:02:03")


def test_the_first_interrupt_requests_a_stop_and_the_second_raises(capsys: Capture) -> None:
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


def test_a_port_in_use_is_reported_immediately(workspace: Path, capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = time.monotonic()
        assert run(["serve", "--port", str(port)]) == 2
    assert f"Port {port} on 127.0.0.1 is in use" in capsys.readouterr().err
    assert time.monotonic() - started < 2


def test_removing_asks_and_protects_user_labels(
    workspace: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(train_words("--name", "small")) == 0
    engine = open_database(sqlite_url(workspace / "data"))
    with writing(engine) as session:
        notes.set_label(session, "small", 3, "Foxes")
    engine.dispose()
    capsys.readouterr()
    assert run(["remove", "small", "--yes"]) == 2
    assert "Add --with-labels to delete them too." in capsys.readouterr().err
    assert run(["remove", "small", "--with-labels"]) == 2
    assert "Add --yes to delete it without asking." in capsys.readouterr().err
    answers = io.StringIO("no\ny\n")
    monkeypatch.setattr(answers, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", answers)
    assert run(["remove", "small", "--with-labels"]) == 1
    assert capsys.readouterr().out == "Nothing was deleted.\n"
    assert run(["remove", "small", "--with-labels", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "Delete run 'small', its index and 1 labels, notes, tags and lists? [y/N] "
    assert json.loads(printed.out) == {"run": "small", "removed": True, "labels_and_notes": 1}
    assert run(["runs", "--json"]) == 0
    assert document(capsys) == []
    assert run(["remove", "small"]) == 2
    assert "Unknown run 'small'. There are no runs yet." in capsys.readouterr().err


def test_the_demo_is_served_with_its_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sample = shutil.copytree(TEST_DEMO, tmp_path / "demo")
    served = []
    monkeypatch.setattr(demo, "serve", lambda settings, when_ready: served.append(settings))
    assert run(["demo", "--data", str(sample), "--port", "0"]) == 0
    (settings,) = served
    engine = open_database(settings.database_url)
    with reading(engine) as session:
        (found,) = list_runs(session, lambda _: None).runs
        assert sessions_of(session, found.name)
    engine.dispose()
    assert (found.name, found.status, found.indexed_tokens) == ("demo-l3-k16", "finished", 19968)


def test_a_missing_demo_is_an_error(workspace: Path, capsys: Capture) -> None:
    assert run(["demo", "--data", "data"]) == 2
    assert "The demo is missing from data" in capsys.readouterr().err
