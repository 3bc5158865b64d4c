"""Training a small language model: from scratch, from another model, interrupted and resumed."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mxd.backend.cli.parser import parse
from mxd.trainer.language_model.model import LanguageModel
from scripts.train_language_model import Recipe, main, train
from tests.helpers.language_models import CONFIGS, saved_language_model
from tests.test_docs import PAGES, blocks

STEPS = 12
SMALL = shlex.split(
    "--context-length 16 --batch 4 --vocabulary 300 --held-out-tokens 64 --held-out-times 3 --learning-rate 1e-2"
)


class PowerCut(Exception):
    """Ends training as nothing that ``Trainer`` knows of would."""


class CutAfter(TrainerCallback):
    """Raises after a step, once what is to be saved after it has been."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step == self._step:
            raise PowerCut


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So that two trainings add in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A text with rules that can be learnt, and a shape for what learns them, as flags."""
    folder = tmp_path_factory.mktemp("given")
    animals = ["cat", "dog", "hen", "owl", "fox"]
    lines = [
        json.dumps({"source": "made", "text": f"The {animal} number {number} says {animal} to the {animal}."})
        for number in range(30)
        for animal in animals
    ]
    (folder / "text.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    # As the sample's: nothing is padded, and what a token is read with is what it is predicted with.
    config = deepcopy(CONFIGS["llama"])
    config.update({"pad_token_id": None, "tie_word_embeddings": True})
    config.save_pretrained(folder)
    return ["--dataset", str(folder / "text.jsonl.gz"), "--config", str(folder), "--tokens", str(STEPS * 64), *SMALL]


@pytest.fixture(scope="module")
def made(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that nothing has stopped."""
    folder = tmp_path_factory.mktemp("made") / "language-model"
    assert main([str(folder), *words]) == 0
    return folder


def said(folder: Path) -> dict[str, Any]:
    """Contents of training.json."""
    found: dict[str, Any] = json.loads((folder / "training.json").read_text("utf-8"))
    return found


def test_the_folder_is_a_language_model_that_has_learnt(made: Path) -> None:
    language_model = LanguageModel.load(str(made), "cpu")
    assert (
        language_model.tokenizer.decode(language_model.tokenizer("The cat says ¡né!")["input_ids"])
        == "The cat says ¡né!"
    )
    assert len(language_model.tokenizer) == language_model.module.config.vocab_size == 300
    assert language_model.module.config.use_cache, "Trainer takes it away"
    losses = said(made)["held_out_losses"]
    assert list(losses) == ["0", "256", "512", "768"]
    assert said(made)["tokens"] == STEPS * 64
    assert losses["768"] == said(made)["held_out_loss"] < losses["0"] - 0.5


def test_a_short_training_is_not_spent_on_measuring(words: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "short"
    assert main([str(folder), *words, "--tokens", "128", "--held-out-times", "20"]) == 0
    assert list(said(folder)["held_out_losses"]) == ["0", "64", "128"]  # 64 held-out tokens, twice


def test_the_held_out_loss_is_that_of_the_folder(made: Path, words: list[str], tmp_path: Path) -> None:
    """In float32 and by the language model's own account: what is said is about what is written."""
    language_model = LanguageModel.load(str(made), "cpu")
    separator, ids = language_model.tokenizer.eos_token_id, list[int]()
    with gzip.open(words[1], "rt", encoding="utf-8") as lines:
        for line in lines:
            ids += [separator, *language_model.tokenizer(json.loads(line)["text"])["input_ids"]]
    rows = torch.tensor(ids[:64]).view(4, 16)
    with torch.no_grad():
        loss = language_model.module(input_ids=rows, labels=rows).loss
    assert float(loss) == pytest.approx(said(made)["held_out_loss"], rel=5e-3)  # bfloat16 there, where it has units


def test_cut_short_and_resumed_it_ends_with_the_same_weights(made: Path, words: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    often = [str(folder), *words, "--checkpoint-minutes", "0"]
    for step, more in ((5, []), (9, ["--resume"])):
        with pytest.raises(PowerCut):
            train(parse(Recipe, [*often, *more], "train_language_model.py"), [CutAfter(step)])
        # A truncated checkpoint, newer than all complete ones.
        half = folder / "checkpoints" / f"checkpoint-{step + 1}"
        half.mkdir()
        (half / "trainer_state.json").write_text("{")
    assert main([*often, "--resume"]) == 0
    one, other = (load_file(path / "model.safetensors") for path in (made, folder))
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert said(folder)["held_out_losses"] == said(made)["held_out_losses"]


def test_it_goes_on_with_another(made: Path, words: list[str], tmp_path: Path) -> None:
    held_out = tmp_path / "held-out.txt"
    held_out.write_text("The fox number 1 says fox to the fox. " * 20)
    folder = tmp_path / "on"
    assert main([str(folder), *words, "--from", str(made), "--held-out", str(held_out)]) == 0
    assert (folder / "tokenizer.json").read_bytes() == (made / "tokenizer.json").read_bytes()
    losses = said(folder)["held_out_losses"]
    assert losses["0"] < said(made)["held_out_losses"]["0"] - 0.5
    assert losses["768"] < losses["0"]
    assert said(folder)["before"]["tokens"] == STEPS * 64


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--context-length", "999"], "128 positions"),
        (["--dataset", "nowhere.txt"], "nowhere.txt"),
        (["--from", "./nowhere"], "nowhere"),
        (["--epochs", "0"], "--epochs"),
        (["--widht", "3"], "--widht"),
    ],
)
def test_what_is_wrong_is_said(
    more: list[str], sentence: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "new"), *words, *more]) == 2
    assert sentence in capsys.readouterr().err


def test_a_text_that_is_too_short(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = tmp_path / "short.txt"
    short.write_text("Few words.")
    assert main([str(tmp_path / "new"), *words, "--dataset", str(short)]) == 2
    assert "Provide more text" in capsys.readouterr().err
    short.write_text("Few words. " * 20)
    assert main([str(tmp_path / "new"), *words, "--dataset", str(short), "--batch", "40"]) == 2
    assert "too few for two steps" in capsys.readouterr().err


def test_a_folder_that_is_there_is_not_trained_over(
    made: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = (made / "model.safetensors").read_bytes()
    assert main([str(made), *words]) == 2
    assert "--resume" in capsys.readouterr().err
    assert (made / "model.safetensors").read_bytes() == before


def test_a_tokenizer_must_fit_the_language_model(
    made: Path, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = saved_language_model(tmp_path / "other")
    assert main([str(tmp_path / "new"), *words, "--from", str(other), "--tokenizer", str(made)]) == 2
    assert "300 tokens, but the language model has 257" in capsys.readouterr().err


def test_lines_in_the_documents_are_taken() -> None:
    found = 0
    for document in PAGES:
        for block in blocks(document):
            for line in re.findall(r"scripts/train_language_model\.py (.*)$", block, flags=re.MULTILINE):
                parse(Recipe, shlex.split(line), "train_language_model.py")
                found += 1
    assert found >= 2
