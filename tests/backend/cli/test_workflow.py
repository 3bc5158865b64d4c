"""The commands from training to steering and removing, also with a start token that the tokenizer lacks."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run
from mxd.backend.database import annotations as notes
from mxd.backend.database.annotations import save_session, sessions_of
from mxd.backend.database.engine import open_database
from mxd.backend.settings import Settings
from mxd.trainer.errors import UsageWarning
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.run import Run
from tests.backend.cli.words import Capture, document, train_words
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import small_world


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
    assert run(["experts", "small", str(strongest), "--examples", "2", "--json"]) == 0
    shown = document(capsys)
    assert (shown["row"]["expert"], len(shown["examples"])) == (strongest, 2)
    assert run(["experts", "small", str(strongest)]) == 0
    assert capsys.readouterr().out.startswith(f"expert {strongest}: ")
    assert run(["experts", "small", "9999"]) == 2
    assert "Unknown expert 9999. Run 'small' has experts 0 to 39." in capsys.readouterr().err

    assert run(["route", "small", "the fox", "--json"]) == 0
    routed = document(capsys)
    assert "".join(token["text"] for token in routed["tokens"][1:]) == "the fox"
    assert all(0 < len(token["experts"]) <= 4 for token in routed["tokens"])
    assert run(["route", "small", "the fox", "--top", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8

    limits = "--unwanted s --hits 2 --probability 0.9954 --max-price 10"
    words = ["find", "small", "--prompt", "the fox", *limits.split()]
    assert run([*words, "--json"]) == 0
    found = document(capsys)
    assert len(found["experts"]) == len(found["effects"]) == 2
    assert run(words) == 0
    *_, command = capsys.readouterr().out.splitlines()
    best = found["experts"][0]["edit"]["expert"]
    assert command.startswith(f"Run: mxd steer small 'the fox' --edit small/{best}:add")

    words = ["steer", "small", "the fox", "--edit", "12:scale:3", "--edit", "30:ablate", "--max-tokens", "5"]
    assert run([*words, "--temperature", "0", "--json"]) == 0
    steered = document(capsys)
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


def test_removing_asks_and_protects_user_labels(
    trained: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_database(sqlite_url(trained / "data"))
    with writing(engine) as session:
        save_session(session, "small", "loud", {}, {})
    assert run(["remove", "small", "--yes"]) == 2
    assert "Add --with-labels to delete them too." in capsys.readouterr().err
    with writing(engine) as session:
        notes.set_label(session, "small", 3, "Foxes")
        assert sessions_of(session, "small")
    engine.dispose()
    assert run(["remove", "small", "--with-labels"]) == 2
    assert "Add --yes to delete it without asking." in capsys.readouterr().err
    answers = io.StringIO("no\ny\n")
    monkeypatch.setattr(answers, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", answers)
    assert run(["remove", "small", "--with-labels"]) == 1
    assert capsys.readouterr().out == "Nothing was deleted.\n"
    assert run(["remove", "small", "--with-labels", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "Delete run 'small', its index and 2 labels, notes, tags, lists and sessions? [y/N] "
    assert json.loads(printed.out) == {"run": "small", "removed": True, "labels_and_notes": 2}
    assert run(["runs", "--json"]) == 0
    assert document(capsys) == []
    assert run(["remove", "small"]) == 2
    assert "Unknown run 'small'. There are no runs yet." in capsys.readouterr().err


START, TEXT = "!", "the old fox"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Working directory with the indexed run, in ``new``."""
    tmp_path = tmp_path_factory.mktemp("start-token")
    small_world(tmp_path).database.dispose()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
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
    capsys.readouterr()
    assert run(["route", "small", TEXT, "--json"]) == 0
    tokens = json.loads(capsys.readouterr().out)["tokens"]
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
    ids = tokenizer(START + TEXT)["input_ids"]
    with torch.no_grad():
        expected = int(module(torch.tensor([ids])).logits[0, -1].argmax())
    with TestClient(create_app(Settings(data=place / "new", device="cpu"))) as client:
        routed = client.post("/api/runs/small/routing", json={"text": TEXT})
        assert routed.status_code == 200, routed.text
        assert [token["id"] for token in routed.json()["tokens"]] == ids
        chat = client.post("/api/runs/small/routing", json={"turns": [{"role": "user", "text": TEXT}]})
        assert chat.status_code == 200, chat.text
        assert [token["id"] for token in chat.json()["tokens"]] == tokenizer(f"{START}<{TEXT}>")["input_ids"]
        body = {"model": "small", "prompt": TEXT, "max_tokens": 1, "temperature": 0}
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["prompt_tokens"] == len(ids)
        assert answer.json()["choices"][0]["text"] == tokenizer.decode([expected])
        messages = [{"role": "user", "content": TEXT}]
        answer = client.post("/v1/chat/completions", json={"model": "small", "messages": messages, "max_tokens": 1})
        assert answer.json()["usage"]["prompt_tokens"] == len(ids) + 2
