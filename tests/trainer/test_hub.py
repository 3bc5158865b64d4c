"""Language models and data sets by their names on a hub: the real clients against a hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub import fake_hub
from tests.language_models import saved_language_model, tiny_language_model

ROOT = Path(__file__).parents[2]
TEXTS = [f"Document number {number}." for number in range(30)]
LOAD = """
import sys
from trainer.errors import UserError
from trainer.language_model import LanguageModel
for name in sys.argv[1:]:
    try:
        language_model = LanguageModel.load(name, "cpu")
    except UserError as error:
        sys.exit(str(error))
    print(sum(parameter.double().sum().item() for parameter in language_model.module.parameters()))
"""
READ = """
import json, sys
from trainer.config import TextConfig
from trainer.documents import documents
from trainer.errors import UserError
for name in sys.argv[1:]:
    try:
        print(json.dumps(list(documents(TextConfig(text=name)))))
    except UserError as error:
        sys.exit(str(error))
"""


def run(program: str, *names: str, endpoint: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own: addresses are read when the clients are imported."""
    environment = {key: value for key, value in os.environ.items() if not key.upper().endswith("PROXY")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", program, *names]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_a_language_model_by_its_name_and_again_without_the_hub(tmp_path: Path) -> None:
    folder = saved_language_model(tmp_path / "folder")
    wanted = sum(parameter.double().sum().item() for parameter in tiny_language_model().module.parameters())
    with fake_hub(models={"some-one/tiny": folder}) as hub:
        done = run(LOAD, "some-one/tiny", "some-one/other", endpoint=hub.url, home=tmp_path / "home")
        assert done.returncode == 1
        assert float(done.stdout) == pytest.approx(wanted)
        assert any("model.safetensors" in asked for asked in hub.asked)
        assert "some-one/other cannot be loaded" in done.stderr
    # What it has fetched it can load without the hub; of what it has not, it is said soon that nobody answers.
    started = time.monotonic()
    again = run(LOAD, "some-one/tiny", "some-one/other", endpoint=hub.url, home=tmp_path / "home")
    assert float(again.stdout) == pytest.approx(wanted)
    check_unreachable(again, "The language model some-one/other", started)


def test_a_data_set_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    with fake_hub(datasets={"some-one/corpus": folder}) as hub:
        done = run(READ, "some-one/corpus", "some-one/other", endpoint=hub.url, home=tmp_path / "home")
        assert done.returncode == 1
        assert json.loads(done.stdout) == TEXTS, (done.stderr, hub.asked)
        assert "some-one/other cannot be read from the hub" in done.stderr


def test_without_a_network_it_is_said_soon_that_a_data_set_cannot_be_read(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(READ, "some-one/tiny", endpoint="http://127.0.0.1:9", home=tmp_path)
    check_unreachable(done, "The data set some-one/tiny", started)


def check_unreachable(done: subprocess.CompletedProcess[str], what: str, started: float) -> None:
    """One sentence, and soon: the clients alone took 23 seconds; imports take most of what is left."""
    assert done.returncode == 1
    assert what in done.stderr
    assert "does not answer" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert time.monotonic() - started < 60
