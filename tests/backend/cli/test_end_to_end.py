"""Interrupted commands leave no partial results."""

import shutil
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx

from tests.backend.cli.words import train_words
from tests.helpers.processes import document, ended, server, start, wait_for
from tests.helpers.runs import World


def snapshot(client: httpx.Client) -> Any:
    """The part of the index of ``small`` that readers see."""
    of_run = client.get("/runs/small").json()["run"]
    experts = client.get("/runs/small/experts", params={"limit": 200}).json()
    contexts = client.get("/runs/small/experts/3/examples").json()
    return of_run["indexed_tokens"], of_run["active_experts"], experts, contexts


def checkpoints(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*checkpoint-*")}


def interrupted_index(words: Sequence[str], place: Path, number: int) -> CompletedProcess[str]:
    with start(*words, folder=place) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Indexing small: ")
        process.send_signal(number)
        return ended(process)


def interrupted_fit(words: Sequence[str], place: Path, number: int, folder: Path) -> CompletedProcess[str]:
    left = checkpoints(folder)
    with start(*words, folder=place) as process:
        wait_for(lambda: any(name.startswith("checkpoint-") for name in checkpoints(folder) - left))
        process.send_signal(number)
        return ended(process)


def test_interrupted_commands_leave_no_partial_results(fitted: World, tmp_path: Path) -> None:
    shutil.copytree(fitted.data, tmp_path / "data")
    folder = tmp_path / "data" / "runs" / "stopped"
    text = ("--dataset", fitted.text.dataset, "--on-short-text", "repeat")
    fit = train_words(*text, "--tokens", "32k", "--checkpoint-every", "4096", "--log-every", "64", "--name", "stopped")
    fit = ["train", str(fitted.data.parent / "language-model"), *fit[2:], "--resume"]
    index = ("index", "small", *text, "--tokens", "20k")
    with server(tmp_path / "data", folder=tmp_path) as (url, _), httpx.Client(base_url=f"{url}/api") as client:
        before = snapshot(client)
        tokens = 0
        for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
            with ThreadPoolExecutor(2) as pool:
                works = (
                    pool.submit(interrupted_index, index, tmp_path, number),
                    pool.submit(interrupted_fit, fit, tmp_path, number, folder),
                )
            ends = [work.result() for work in works]
            assert [end.returncode for end in ends] == [code, code]
            assert all("Traceback" not in end.stderr for end in ends)
            assert snapshot(client) == before
            stopped = client.get("/runs/stopped").json()["run"]
            assert stopped["status"] == "stopped"
            assert tokens < stopped["trained_tokens"] < 32_000
            tokens = stopped["trained_tokens"]
            assert not (folder / "layer.safetensors").exists()

        with start(*index, "--json", folder=tmp_path) as indexing, start(*fit, "--json", folder=tmp_path) as fitting:
            assert document(ended(indexing))["tokens"] == 20_000
            assert document(ended(fitting))["tokens"] == 32_000
        assert snapshot(client)[0] == 20_000
        whole = client.get("/runs/stopped").json()
    assert whole["run"]["status"] == "finished"
    steps = [metric["step"] for metric in whole["metrics"]]
    assert set(range(64, 501, 64)) <= set(steps)
    assert steps == sorted(set(steps))
    assert checkpoints(folder) == {"checkpoint-448", "checkpoint-500"}, "the last one, and the one before it"
