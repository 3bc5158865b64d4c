"""Commands and HTTP end to end, in separate processes: success and interruption."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest

from tests.helpers.language_models import saved_language_model
from tests.helpers.processes import document, ended, installed, mxd, server, start, wait_for
from tests.helpers.runs import small_world

TEXT = ("--dataset", "text.jsonl", "--on-short-text", "repeat")
SIZES = ("--num-experts", "40", "--k", "4", "--context-length", "16", "--batch-tokens", "64", "--buffer-tokens", "512")
FIT = ("train", "lm", "--layer", "1", *TEXT, *SIZES)
INDEX_TOKENS = 2000
PROMPT = "the old fox"
EDITS = ({"expert": 12, "mode": "set", "strength": 100.0}, {"expert": 30, "mode": "ablate"})
SAMPLING = {"max_tokens": 12, "temperature": 1.0, "seed": 5}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a language model, damaged files, and the indexed run ``small``."""
    folder = tmp_path_factory.mktemp("end-to-end")
    small_world(folder).database.dispose()
    saved_language_model(folder / "lm")
    with installed(*FIT, "--tokens", "1536", "--name", "small", "--json", folder=folder) as fitting:
        trained = document(ended(fitting))
    assert trained.keys() >= {"run", "tokens", "normalized_mse", "dead_share", "tokens_per_second"}
    assert (trained["run"], trained["tokens"]) == ("small", 1536)
    indexed = document(mxd("index", "small", *TEXT, "--tokens", str(INDEX_TOKENS), "--json", folder=folder))
    assert indexed.keys() >= {"run", "tokens", "examples", "active_experts"}
    assert (indexed["run"], indexed["tokens"]) == ("small", INDEX_TOKENS)
    return folder


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[httpx.Client]:
    """A client of a server on that folder."""
    with server(place / "data", folder=place) as (url, _), httpx.Client(base_url=f"{url}/api", timeout=30) as it:
        yield it


@pytest.fixture(scope="module")
def said(place: Path) -> dict[str, Any]:
    """Output of each command that reads a run."""
    edits = [word for edit in ("12:set:100", "30:ablate") for word in ("--edit", edit)]
    sampling = ["--max-tokens", "12", "--temperature", "1", "--seed", "5"]
    commands = (["runs"], ["route", "small", PROMPT], ["steer", "small", PROMPT, *edits, *sampling])
    with ExitStack() as running:
        processes = [running.enter_context(start(*words, "--json", folder=place)) for words in commands]
        return {words[0]: document(ended(process)) for words, process in zip(commands, processes, strict=True)}


def test_runs_are_the_same_on_the_command_line_and_over_http(client: httpx.Client, said: dict[str, Any]) -> None:
    served = client.get("/runs").json()["runs"]
    assert said["runs"] == served
    (run,) = served
    assert (run["name"], run["status"], run["trained_tokens"]) == ("small", "finished", 1536)
    assert (run["indexed_tokens"], run["num_experts"]) == (INDEX_TOKENS, 40)


def test_routing_is_the_same_on_the_command_line_and_over_http(client: httpx.Client, said: dict[str, Any]) -> None:
    served = client.post("/runs/small/routing", json={"text": PROMPT}).json()
    assert "".join(token["text"] for token in served["tokens"][1:]) == PROMPT
    for printed, token in zip(said["route"]["tokens"], served["tokens"], strict=True):
        experts = [{name: pytest.approx(value) for name, value in expert.items()} for expert in token["experts"]]
        assert printed == {**token, "experts": experts}


def test_steering_is_the_same_on_the_command_line_and_over_http(client: httpx.Client, said: dict[str, Any]) -> None:
    body = {"prompt": PROMPT, "edits": EDITS, "sampling": SAMPLING}
    with client.stream("POST", "/runs/small/steering", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    assert [events[0]["event"], events[-1]["event"]] == ["start", "done"]
    for variant in ("baseline", "steered"):
        (printed,) = said["steer"][variant]
        tokens = [event for event in events if event.get("variant") == variant]
        assert [token.keys() for token in printed["tokens"]] == [token.keys() for token in tokens]
        assert printed["text"] == "".join(token["text"] for token in tokens)
        assert [token["kl"] for token in printed["tokens"]] == pytest.approx(
            [token["kl"] for token in tokens], abs=1e-5
        )
    assert said["steer"]["baseline"][0]["text"] != said["steer"]["steered"][0]["text"]


# ---------------------------------------------------------------- what is interrupted


def snapshot(client: httpx.Client) -> Any:
    """The part of the index of ``small`` that readers see."""
    run = client.get("/runs/small").json()["run"]
    experts = client.get("/runs/small/experts", params={"limit": 200}).json()
    contexts = client.get("/runs/small/experts/3/examples").json()
    return run["indexed_tokens"], run["active_experts"], experts, contexts


def checkpoints(folder: Path) -> set[str]:
    """Checkpoints of a run, complete and half-written ones."""
    return {path.name for path in folder.glob("*checkpoint-*")}


def interrupted_index(words: Sequence[str], place: Path, number: int) -> CompletedProcess[str]:
    """Send a signal to ``mxd index`` after it has started to read."""
    with start(*words, folder=place) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Indexing small: ")
        process.send_signal(number)
        return ended(process)


def interrupted_fit(words: Sequence[str], place: Path, number: int, folder: Path) -> CompletedProcess[str]:
    """Send a signal to ``mxd train`` after it has written a checkpoint."""
    left = checkpoints(folder)
    with start(*words, folder=place) as process:
        wait_for(lambda: any(name.startswith("checkpoint-") for name in checkpoints(folder) - left))
        process.send_signal(number)
        return ended(process)


def test_interrupted_commands_leave_no_partial_results(place: Path, client: httpx.Client) -> None:
    folder = place / "data" / "runs" / "stopped"
    fit = (*FIT, "--tokens", "64k", "--checkpoint-every", "4096", "--log-every", "64", "--name", "stopped", "--resume")
    index = ("index", "small", *TEXT, "--tokens", "40k")
    before = snapshot(client)
    tokens = 0
    for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
        with ThreadPoolExecutor(2) as pool:
            works = (
                pool.submit(interrupted_index, index, place, number),
                pool.submit(interrupted_fit, fit, place, number, folder),
            )
        ends = [work.result() for work in works]
        assert [end.returncode for end in ends] == [code, code]
        assert all("Traceback" not in end.stderr for end in ends)
        assert snapshot(client) == before
        run = client.get("/runs/stopped").json()["run"]
        assert run["status"] == "stopped"
        assert tokens < run["trained_tokens"] < 64_000
        tokens = run["trained_tokens"]
        assert not (folder / "layer.safetensors").exists()

    with start(*index, "--json", folder=place) as indexing, start(*fit, "--json", folder=place) as fitting:
        assert document(ended(indexing))["tokens"] == 40_000
        assert document(ended(fitting))["tokens"] == 64_000
    assert snapshot(client)[0] == 40_000
    whole = client.get("/runs/stopped").json()
    assert whole["run"]["status"] == "finished"
    steps = [metric["step"] for metric in whole["metrics"]]
    assert set(range(64, 1001, 64)) <= set(steps)
    assert steps == sorted(set(steps))
    assert checkpoints(folder) == {"checkpoint-960", "checkpoint-1000"}, "the last one, and the one before it"
