"""Commands from training to removing, also with a start token that the tokenizer lacks, and interrupted ones."""

import io
import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest
import torch
from fastapi.testclient import TestClient
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run
from mxd.backend.database import annotations
from mxd.backend.database.engine import opened
from mxd.backend.settings import Settings
from mxd.trainer.errors import UsageWarning
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.run import Run
from tests.backend.cli.conftest import Capture, document, output, rejected, train_words
from tests.helpers.processes import ended, server, start, wait_for
from tests.helpers.runs import World, byte_tokenizer, small_world, tiny_language_model


def test_train_index_explore_and_steer(workspace: Path, capsys: Capture) -> None:
    trained = document(capsys, *train_words("--name", "small"))
    assert trained.keys() >= {"run", "tokens", "normalized_mse", "dead_share", "tokens_per_second"}
    assert (trained["run"], trained["tokens"], trained["status"]) == ("small", 1536, "finished")

    indexed = document(capsys, "index", "small", "--dataset", "text.jsonl", "--tokens", "2k")
    assert indexed["run"] == "small"
    assert min(indexed["examples"], indexed["active_experts"]) > 0
    assert indexed["tokens"] % 16 == 0, "the run's context length is used"

    (listed,) = document(capsys, "runs")
    assert (listed["name"], listed["status"], listed["indexed_tokens"]) == ("small", "finished", indexed["tokens"])
    assert output(capsys, "runs").splitlines()[1].startswith(f"small  finished  {workspace / 'lm'}")

    listed_experts = document(capsys, "experts", "small", "--sort", "density", "--limit", "3")
    densities = [row["density"] for row in listed_experts["experts"]]
    assert (len(densities), densities, listed_experts["total"]) == (3, sorted(densities, reverse=True), 40)
    strongest = listed_experts["experts"][0]["expert"]
    assert "matching experts shown" in output(capsys, "experts", "small", "--search", "fox")
    shown = document(capsys, "experts", "small", str(strongest), "--examples", "2")
    assert (shown["row"]["expert"], len(shown["examples"])) == (strongest, 2)
    assert output(capsys, "experts", "small", str(strongest)).startswith(f"expert {strongest}: ")
    assert "Unknown expert 9999. Run 'small' has experts 0 to 39." in rejected(capsys, "experts", "small", "9999")

    routed = document(capsys, "route", "small", "the fox")
    assert "".join(token["text"] for token in routed["tokens"][1:]) == "the fox"
    assert all(0 < len(token["experts"]) <= 4 for token in routed["tokens"])
    assert len(output(capsys, "route", "small", "the fox", "--top", "2").splitlines()) == 8

    limits = "--unwanted s --hits 2 --probability 0.9954 --max-price 10"
    words = ["find", "small", "--prompt", "the fox", *limits.split()]
    found = document(capsys, *words)
    assert len(found["experts"]) == len(found["effects"]) == 2
    best = found["experts"][0]["edit"]["expert"]
    *_, command = output(capsys, *words).splitlines()
    assert command.startswith(f"Run: mxd steer small 'the fox' --edit small/{best}:add")

    edits = "--edit 12:scale:3 --edit 30:ablate --max-tokens 5 --temperature 0"
    steered = document(capsys, "steer", "small", "the fox", *edits.split())
    assert len(steered["baseline"][0]["tokens"]) <= 5
    assert steered["steered"][0].keys() == {"text", "reason", "tokens"}


def test_a_run_is_used_from_any_folder(trained: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["steer", "small", "the", "--edit", "12:add:1", "--max-tokens", "2", "--json"]
    elsewhere = trained / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with pytest.warns(UsageWarning, match="99th percentile of expert 12 is unknown"):
        assert run(words) == 0
    Run.load("small", trained / "data").write_units({12: 2.5})
    assert run(words) == 0
    assert "is unknown" not in capsys.readouterr().err


def test_removing_asks_and_protects_labels(trained: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(sqlite_url(trained / "data")) as engine:
        with writing(engine) as session:
            annotations.save_session(session, "small", "loud", {}, {})
        assert "Add --with-labels to delete them too." in rejected(capsys, "remove", "small", "--yes")
        with writing(engine) as session:
            annotations.set_label(session, "small", 3, "Foxes")
            assert annotations.sessions_of(session, "small")
    assert "Add --yes to delete it without asking." in rejected(capsys, "remove", "small", "--with-labels")
    answers = io.StringIO("no\ny\n")
    monkeypatch.setattr(answers, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", answers)
    assert run(["remove", "small", "--with-labels"]) == 1
    assert capsys.readouterr().out == "Nothing was deleted.\n"
    assert run(["remove", "small", "--with-labels", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "Delete run 'small', its index and 2 labels, notes, tags, lists and sessions? [y/N] "
    assert json.loads(printed.out) == {"run": "small", "removed": True, "labels_and_notes": 2}
    assert "Unknown run 'small'. There are no runs yet." in rejected(capsys, "remove", "small")


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
            for process, tokens in ((indexing, 20_000), (fitting, 32_000)):
                finished = ended(process)
                assert finished.returncode == 0, finished.stderr
                assert json.loads(finished.stdout)["tokens"] == tokens
        assert snapshot(client)[0] == 20_000
        whole = client.get("/runs/stopped").json()
    assert whole["run"]["status"] == "finished"
    steps = [metric["step"] for metric in whole["metrics"]]
    assert set(range(64, 501, 64)) <= set(steps)
    assert steps == sorted(set(steps))
    kept = checkpoints(folder)  # which one is before the last depends on the time that checkpoints take
    assert "checkpoint-500" in kept and len(kept) == 2, "the last one, and the one before it"


START, TEXT = "!", "the red fox"  # what the model continues it with is a whole character


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Working directory with the indexed run, in ``new``."""
    tmp_path = tmp_path_factory.mktemp("start-token")
    small_world(tmp_path).database.dispose()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer().backend_tokenizer)  # no special tokens
    tokenizer.chat_template = "!{% for message in messages %}<{{ message.content }}>{% endfor %}"
    tokenizer.save_pretrained(tmp_path / "lm")
    tiny_language_model().module.save_pretrained(tmp_path / "lm")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("MXD_DATA", str(tmp_path / "new"))
        assert run(train_words("--name", "small", "--start-token", START)) == 0
        assert run(["index", "small", "--dataset", "text.jsonl", "--context-length", "16", "--tokens", "640"]) == 0
        yield tmp_path


def test_every_command_uses_it(place: Path, capsys: Capture) -> None:
    tokens = document(capsys, "route", "small", TEXT)["tokens"]
    ids = [PreTrainedTokenizerFast.from_pretrained(place / "lm").convert_tokens_to_ids(letter) for letter in "!the"]
    assert [token["id"] for token in tokens][:4] == ids
    assert run(["steer", "small", TEXT, "--edit", "3:add:2", "--max-tokens", "2"]) == 0
    Path("labels.jsonl").write_text(
        "".join(json.dumps({"text": f"{TEXT} {n}", "label": str(n % 2)}) + "\n" for n in range(40))
    )
    assert run(["probe", "small", "--labels", "labels.jsonl", "--tokens", "8"]) == 0
    held = json.dumps({"text": "a red dog ran"}) + "\n"
    Path("held.jsonl").write_text(held * 200)
    words = "--tokens 640 --context-length 16 --resamples 100 --prompts 1 --jacobian-tokens 0"
    assert run(["evaluate", "small", "--dataset", "held.jsonl", *words.split()]) == 0


def test_every_endpoint_uses_it(place: Path) -> None:
    module = AutoModelForCausalLM.from_pretrained(place / "lm")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(place / "lm")
    ids, chat = (tokenizer(text)["input_ids"] for text in (START + TEXT, f"{START}<{TEXT}>"))
    with torch.no_grad():
        expected = int(module(torch.tensor([ids])).logits[0, -1].argmax())
    with TestClient(create_app(Settings(data=place / "new", device="cpu"))) as client:

        def answer(path: str, **body: Any) -> Any:
            found = client.post(path, json=body)
            assert found.status_code == 200, found.text
            return found.json()

        turns, messages = ([{"role": "user", name: TEXT}] for name in ("text", "content"))
        for body, wanted in (({"text": TEXT}, ids), ({"turns": turns}, chat)):
            assert [token["id"] for token in answer("/api/runs/small/routing", **body)["tokens"]] == wanted
        completed = answer("/v1/completions", model="small", prompt=TEXT, max_tokens=1, temperature=0)
        assert completed["usage"]["prompt_tokens"] == len(ids)
        assert completed["choices"][0]["text"] == tokenizer.decode([expected])
        chatted = answer("/v1/chat/completions", model="small", messages=messages, max_tokens=1)
        assert chatted["usage"]["prompt_tokens"] == len(chat)
