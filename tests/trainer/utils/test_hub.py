"""Models and datasets from the Hub: the real clients against a local fake Hub."""

import json
import time
from pathlib import Path

import pytest

from mxd.trainer.config import TextConfig
from mxd.trainer.data.documents import documents
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from tests.helpers.language_models import saved_language_model, tiny_language_model
from tests.helpers.servers.hub import fake_hub, using_hub

TEXTS = [f"Document number {number}." for number in range(30)]
NOBODY = "http://127.0.0.1:9"
"""Address without a server."""


def weights_sum(language_model: LanguageModel) -> float:
    return float(sum(parameter.double().sum() for parameter in language_model.module.parameters()))


def test_a_model_is_downloaded_and_then_cached(tmp_path: Path) -> None:
    folder = saved_language_model(tmp_path / "folder")
    expected = pytest.approx(weights_sum(tiny_language_model()))
    with fake_hub(models={"some-one/tiny": folder}) as hub, using_hub(hub.url, tmp_path / "home"):
        assert weights_sum(LanguageModel.load("some-one/tiny", "cpu")) == expected
        assert any("model.safetensors" in asked for asked in hub.asked)
        with pytest.raises(UserError, match="some-one/other cannot be loaded"):
            LanguageModel.load("some-one/other", "cpu")
    # Without the Hub, cached models load, and others give an error quickly.
    started = time.monotonic()
    with using_hub(NOBODY, tmp_path / "home"):
        assert weights_sum(LanguageModel.load("some-one/tiny", "cpu")) == expected
        with pytest.raises(UserError, match=r"The language model some-one/other .* does not answer"):
            LanguageModel.load("some-one/other", "cpu")
    assert time.monotonic() - started < 60


def test_a_dataset_is_read_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    with fake_hub(datasets={"some-one/corpus": folder}) as hub, using_hub(hub.url, tmp_path / "home"):
        assert list(documents(TextConfig(dataset="some-one/corpus"))) == TEXTS
        with pytest.raises(UserError, match="Cannot read the dataset 'some-one/other' from the Hub"):
            list(documents(TextConfig(dataset="some-one/other")))


def test_an_unreachable_hub_is_reported_quickly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    with using_hub(NOBODY, tmp_path), pytest.raises(UserError, match=r"the dataset 'some-one/tiny'.* does not answer"):
        list(documents(TextConfig(dataset="some-one/tiny")))
    assert time.monotonic() - started < 60
    assert capfd.readouterr() == ("", "")
