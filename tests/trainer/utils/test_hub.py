"""Models and datasets from the Hub: the real clients against a local fake Hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.hub import fake_hub
from tests.helpers.language_models import saved_language_model, tiny_language_model

ROOT = Path(__file__).parents[3]
TEXTS = [f"Document number {number}." for number in range(30)]
LOAD = """
import sys
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
for name in sys.argv[1:]:
    try:
        language_model = LanguageModel.load(name, "cpu")
    except UserError as error:
        sys.exit(str(error))
    print(sum(parameter.double().sum().item() for parameter in language_model.module.parameters()))
"""
READ = """
import json, sys
from mxd.trainer.config import TextConfig
from mxd.trainer.data.documents import documents
from mxd.trainer.errors import UserError
for name in sys.argv[1:]:
    try:
        print(json.dumps(list(documents(TextConfig(dataset=name)))))
    except UserError as error:
        sys.exit(str(error))
"""


def run(program: str, *names: str, endpoint: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a separate process, because the clients read the endpoint when imported."""
    environment = {key: value for key, value in os.environ.items() if not key.upper().endswith("PROXY")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *names]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_a_model_is_downloaded_and_then_cached(tmp_path: Path) -> None:
    folder = saved_language_model(tmp_path / "folder")
    expected = sum(parameter.double().sum().item() for parameter in tiny_language_model().module.parameters())
    with fake_hub(models={"some-one/tiny": folder}) as hub:
        done = run(LOAD, "some-one/tiny", "some-one/other", endpoint=hub.url, home=tmp_path / "home")
        assert done.returncode == 1
        assert float(done.stdout) == pytest.approx(expected)
        assert any("model.safetensors" in asked for asked in hub.asked)
        assert "some-one/other cannot be loaded" in done.stderr
    # Without the Hub, cached models load, and others give an error quickly.
    started = time.monotonic()
    again = run(LOAD, "some-one/tiny", "some-one/other", endpoint=hub.url, home=tmp_path / "home")
    assert float(again.stdout) == pytest.approx(expected)
    check_unreachable(again, "The language model some-one/other", started)


def test_a_dataset_is_read_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    with fake_hub(datasets={"some-one/corpus": folder}) as hub:
        done = run(READ, "some-one/corpus", "some-one/other", endpoint=hub.url, home=tmp_path / "home")
        assert done.returncode == 1
        assert json.loads(done.stdout) == TEXTS, (done.stderr, hub.asked)
        assert "Cannot read the dataset 'some-one/other' from the Hub" in done.stderr


def test_an_unreachable_hub_is_reported_quickly(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(READ, "some-one/tiny", endpoint="http://127.0.0.1:9", home=tmp_path)
    check_unreachable(done, "the dataset 'some-one/tiny'", started)


def check_unreachable(done: subprocess.CompletedProcess[str], what: str, started: float) -> None:
    """Check for a one-line error well before the clients' own timeouts."""
    assert done.returncode == 1
    assert what in done.stderr
    assert "does not answer" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert time.monotonic() - started < 60
