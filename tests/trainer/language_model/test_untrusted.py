"""Configs that do not fit their weights and tokenizers that hang or fill the memory are refused with a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.loading import load_module, load_outline
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.language_model.untrusted import tokenizer_check, tokenizer_probe
from tests.helpers.runs import byte_level, saved_language_model

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


FIXED = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}


def replace(text: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


def changed(**values: Any) -> str:
    """The tokenizer.json of a tiny tokenizer with other values."""
    return json.dumps(json.loads(byte_level().backend_tokenizer.to_str()) | values)


HOSTILE: dict[str, tuple[str, str]] = {
    "doubling": (changed(normalizer={"type": "Sequence", "normalizers": [replace("a", "aa")] * 40}), "times as long"),
    "doubling decoder": (changed(decoder={"type": "Sequence", "decoders": [replace("a", "aa")] * 40}), "times as long"),
    "padding": (changed(padding={"strategy": {"Fixed": 10**12}, **FIXED}), "too much memory"),
    "nested": ('{"normalizer":' * 100_000, "nested too deeply"),
    "not JSON": ("{", "is not JSON"),
    "a list": ("[]", "not a JSON object"),
    "no tokenizer": ('{"model": {"type": "BPE", "vocab": 3}}', "is not a tokenizer"),
    "long token": (
        changed(added_tokens=[{"id": 500, "content": "x" * 9999, "special": False}]),
        "not a tokenizer|9,999",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound tokenizer, and a cache of the test's own."""
    monkeypatch.setenv("MXD_CACHE", str(tmp_path / "cache"))
    byte_level().save_pretrained(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tokenizer_is_rejected(name: str, folder: Path) -> None:
    content, sentence = HOSTILE[name]
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=sentence) as raised:
        load_tokenizer(str(folder))
    assert "\n" not in str(raised.value)


def test_nested_tokenizer_settings_are_rejected(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"extra":' * 100_000)
    with pytest.raises(UserError, match="nested too deeply"):
        load_tokenizer(str(folder))


def test_a_sound_tokenizer_is_checked_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_tokenizer(str(folder))
    tokenizer_check._problem.cache_clear()
    monkeypatch.setattr(tokenizer_check, "_run", lambda _paths: pytest.fail("it was checked again"))
    load_tokenizer(str(folder))
    (folder / "tokenizer.json").write_text(changed(normalizer=None) + " ")
    with pytest.raises(pytest.fail.Exception):
        load_tokenizer(str(folder))


SYSTEMS = {
    "macOS": """
import resource
plain = resource.setrlimit
def setrlimit(kind, limits):
    if kind == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    plain(kind, limits)
resource.setrlimit = setrlimit
""",
    "Windows": "import sys; sys.modules['resource'] = None",
}
"""System -> Python that makes limits of a process fail as they do there."""


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_without_a_memory_limit_loads_tokenizers(
    system: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = tokenizer_probe.__file__
    program = tmp_path / "probe.py"
    program.write_text(f"{SYSTEMS[system]}\nimport runpy; runpy.run_path({probe!r}, run_name='__main__')")
    monkeypatch.setattr(tokenizer_probe, "__file__", str(program))
    load_tokenizer(str(folder))
    (folder / "tokenizer.json").write_text(HOSTILE["doubling"][0])
    with pytest.raises(UserError, match="times as long"):
        load_tokenizer(str(folder))
