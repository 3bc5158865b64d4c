"""A checkpoint of the paper's own code, on the Hugging Face language model, gives the log-probabilities of there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from mxd.trainer.config.analysis import ImportConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.formats.import_run import import_run
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import byte_tokenizer

REFERENCE = Path(__file__).parents[3] / "reference" / "import"


@pytest.fixture
def language_model_folder(tmp_path: Path) -> Path:
    """The language model of the checkpoint, with a tokenizer, which it has none of."""
    folder = tmp_path / "lm"
    module = AutoModelForCausalLM.from_pretrained(REFERENCE / "language_model")
    module.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def test_log_probabilities_are_those_of_the_papers_code(tmp_path: Path, language_model_folder: Path) -> None:
    database = open_trainer_database(sqlite_url(tmp_path / "data"))
    config = ImportConfig(source=str(REFERENCE / "mxd.pt"), name="theirs", language_model=str(language_model_folder))
    result = import_run(config, tmp_path / "data", database)
    database.dispose()
    assert (result.layer, result.method, result.num_experts, result.k) == (1, "mxd", 64, 6)
    golden = load_file(REFERENCE / "expected.safetensors")
    language_model = LanguageModel.load(str(language_model_folder), "cpu", torch.float32)
    run = Run.load("theirs", tmp_path / "data")
    original = language_model.logits(golden["input_ids"]).log_softmax(dim=-1)
    assert (original - golden["log_probs.original"]).abs().max() < 1e-5
    with language_model.replace({1: run.layer}):
        replaced = language_model.logits(golden["input_ids"]).log_softmax(dim=-1)
    assert (golden["log_probs.replaced"] - golden["log_probs.original"]).abs().max() > 0.1, "a test that can fail"
    assert (replaced - golden["log_probs.replaced"]).abs().max() < 1e-5
    assert run.config.origin is not None
    assert (run.config.origin.format, run.config.tokens) == ("mxd-checkpoint", 480_000_000)
