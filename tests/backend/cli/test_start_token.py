"""A run with ``--start-token`` of a tokenizer without beginning or end of text: every command and endpoint uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from tests.backend.cli.words import Capture, train_words
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import small_world

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
