"""Configs that do not fit their weights, or no model, are refused before anything of that size is built."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.loading import load_module, load_outline
from tests.helpers.runs import saved_language_model

HUGE: dict[str, tuple[dict[str, Any], str]] = {
    "layers": ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1,000,000,000"),
    "more layers than tensors": ({"num_hidden_layers": 3000}, "3,000 layers"),
    "heads": ({"num_attention_heads": 10**7}, "num_attention_heads"),
    "classes": ({"num_labels": 10**9}, "num_labels"),
    "width": ({"intermediate_size": 10**8}, "but the weights hold"),
    "vocabulary": ({"vocab_size": 10**9}, "but the weights hold"),
    "overflow": ({"hidden_size": 2**62}, "hidden_size"),
    "inner config": ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers"),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_config_larger_than_its_weights_is_rejected(name: str, tmp_path: Path) -> None:
    folder = saved_language_model(tmp_path / "language-model")
    values, sentence = HUGE[name]
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    with pytest.raises(UserError, match=sentence) as raised:
        load_module(str(folder), torch.float32)
    assert "\n" not in str(raised.value)
    if name == "layers":
        with pytest.raises(UserError, match="num_hidden_layers"):
            load_outline(str(folder))
