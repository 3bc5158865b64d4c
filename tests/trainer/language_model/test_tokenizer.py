"""Token texts join to the decoded text for every kind of tokenizer; words that are related to a description."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase

from mxd.trainer.errors import UserError
from mxd.trainer.language_model import related_words
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.related_words import RelatedWords
from mxd.trainer.language_model.tokenizer import decode_all, load_tokenizer, start_token_id, token_texts
from tests.helpers.runs import END, World, byte_fallback, byte_level, metaspace, word_piece

TOKENIZERS: dict[str, PreTrainedTokenizerBase] = {
    "byte-level": byte_level(),
    "byte-fallback": byte_fallback(),
    "metaspace": metaspace(),
    "word-piece": word_piece(),
    "slow": ByT5Tokenizer(),
}


def decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def token_id(tokenizer: PreTrainedTokenizerBase, name: int | str) -> int:
    actual = name if isinstance(name, int) else tokenizer.convert_tokens_to_ids(name)
    assert isinstance(actual, int)
    return actual


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_texts_of_any_ids_join_to_the_decoded_whole(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=20))
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == decode(tokenizer, ids)


@pytest.mark.parametrize("name", ["byte-level", "byte-fallback", "slow"])
@given(text=st.text(max_size=30))
def test_texts_of_encoded_text_join_to_the_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert "".join(token_texts(tokenizer, encode(tokenizer, text))) == text


@pytest.mark.parametrize("name", TOKENIZERS)
def test_many_sequences_decode_as_one_by_one(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    sequences = [list(range(start, start + 5)) for start in range(0, 50, 7)] + [[]]
    assert decode_all(tokenizer, sequences) == [decode(tokenizer, ids) for ids in sequences]


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=30))
def test_byte_level_texts_break_where_characters_end(text: str) -> None:
    tokenizer = TOKENIZERS["byte-level"]
    ids = encode(tokenizer, text)
    lengths = [len(piece) for piece in token_texts(tokenizer, ids)]
    for stop in range(len(ids) + 1):
        whole_characters = decode(tokenizer, ids[:stop])
        if whole_characters == text[: len(whole_characters)]:
            assert sum(lengths[:stop]) == len(whole_characters)


CUT = encode(TOKENIZERS["byte-level"], "a🦊")[:-1]


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        # A character belongs to its last token.
        ("byte-level", "a 🦊 a", ["a", " ", "", "", "🦊", " a"]),
        ("byte-fallback", "a 🦊 a", ["a", " ", "", "", "", "🦊", " a"]),
        ("byte-level", "\ufffda", ["", "", "\ufffd", "a"]),
        ("byte-level", CUT, ["a", "", "\ufffd"]),
        ("byte-level", [END, "Ġthe", END], [END, " the", END]),
        ("byte-level", ["naïve ż", "   "], ["naïve ż", "   "]),  # added tokens, which are written by name
        ("byte-fallback", ["<0xE2>", "<0x82>", "<0xAC>", "<0xFF>"], ["\ufffd"] * 4),
        ("byte-fallback", ["▁a", "▁a", "<s>", "▁a"], ["a", " a", "<s>", " a"]),
        ("byte-fallback", [9999, "▁a", 9999, "▁a"], ["", "a", "", " a"]),
        ("byte-fallback", [], []),
    ],
)
def test_texts_of_single_tokens(name: str, tokens: str | list[int | str], expected: list[str]) -> None:
    tokenizer = TOKENIZERS[name]
    ids = encode(tokenizer, tokens) if isinstance(tokens, str) else [token_id(tokenizer, each) for each in tokens]
    assert token_texts(tokenizer, ids) == expected


@pytest.mark.parametrize("name", ["byte-level", "byte-fallback", "metaspace"])
def test_long_texts_take_linear_time(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = encode(tokenizer, "a b the dog � 🦊" * 1000 + "�" * 10_000)
    started = time.process_time()
    assert "".join(token_texts(tokenizer, ids)) == decode(tokenizer, ids)
    # Quadratic, this takes minutes.
    assert time.process_time() - started < 5


def test_a_named_start_token() -> None:
    tokenizer = TOKENIZERS["byte-level"]
    assert start_token_id(tokenizer, "a") == token_id(tokenizer, "a")
    with pytest.raises(UserError, match="The tokenizer has no token '<s>'"):
        start_token_id(tokenizer, "<s>")


def test_the_start_token_is_the_one_that_the_tokenizer_adds() -> None:
    tokenizer = byte_fallback()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<unk> $A", special_tokens=[("<unk>", 0)])
    assert start_token_id(tokenizer) == 0


def test_start_token_is_end_of_text_else_beginning_of_text() -> None:
    assert start_token_id(TOKENIZERS["byte-level"]) == TOKENIZERS["byte-level"].eos_token_id
    assert start_token_id(TOKENIZERS["byte-fallback"]) == 1
    with pytest.raises(UserError, match="eos_token"):
        start_token_id(TOKENIZERS["metaspace"])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "unknown model": lambda path: path.write_text(path.read_text().replace('"BPE"', '"Nothing"')),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "binary": lambda path: path.write_bytes(b"\xff\xfe\0\1"),
    "deleted": lambda path: list(map(Path.unlink, path.parent.iterdir())),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_load_a_damaged_tokenizer(tmp_path: Path, damage: str) -> None:
    byte_level().save_pretrained(tmp_path)
    DAMAGES[damage](tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="cannot be loaded") as raised:
        load_tokenizer(str(tmp_path))
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


DEMO = "tests/demo/language-model"


def test_words_expected_after_any_description_are_not_related(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """“e” follows everything; “m” follows one description only."""
    tokens = world.language_model.tokenizer("em", add_special_tokens=False)["input_ids"]

    def expected(related: RelatedWords, texts: Sequence[str], start_token: str | None) -> torch.Tensor:
        probability = torch.full((len(texts), world.language_model.architecture.vocabulary_size), 1e-6)
        probability[:, tokens[0]] = 0.5
        if list(texts) == ["medicine"]:
            probability[:, tokens[1]] = 0.1
        return probability

    monkeypatch.setattr(related_words, "MIN_LETTERS", 1)
    monkeypatch.setattr(RelatedWords, "_after_descriptions", expected)
    assert RelatedWords(world.language_model).of("medicine", None) == {"m": 1.0}


def test_descriptions_of_several_lengths_are_computed_together(world: World) -> None:
    related = RelatedWords(world.language_model)
    together = related._after_descriptions(["a", "days of the week"], None)
    alone = [related._after_descriptions([text], None) for text in ("a", "days of the week")]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_a_word_without_tokens_is_related_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    related = RelatedWords(LanguageModel.load(DEMO))
    assert related._similar_to(["fast"])["fast"] == pytest.approx(1.0, abs=1e-4)
    monkeypatch.setattr(related._language_model, "tokenizer", lambda *_, **__: {"input_ids": []})
    assert related._similar_to(["zzqq"]) == {}


def test_similar_embeddings_relate_words_and_reject_beginnings_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    language_model = LanguageModel.load(DEMO)
    token = {word: language_model.tokenizer(f" {word}")["input_ids"][-1] for word in ("fast", "discover", "prote")}
    embedding_VD = language_model.module.get_input_embeddings().weight
    generator = torch.Generator().manual_seed(0)
    noise_VD = torch.randn(embedding_VD.shape, generator=generator)
    embedding_VD.copy_(noise_VD + 20)  # all are similar, until what is common to them is removed
    embedding_VD[token["discover"]] = embedding_VD[token["fast"]] + 0.5 * noise_VD[0]
    monkeypatch.setattr(RelatedWords, "_expected_after", lambda *_: {"prote": 4.0, "unknown": 1.0, "fast": 0.25})
    related = RelatedWords(language_model).of("the fast", None)
    assert set(related) == {"fast", "unknown", "discover"} and [*related][-1] == "discover"
    # "fast" itself is as similar as can be, and what is expected counts by the square root of its relation.
    assert related["fast"] == pytest.approx(1.0, abs=1e-4) and related["unknown"] == 1.0
    assert related["discover"] == pytest.approx(1 / 1.25**0.5, abs=0.05)
    # As “Friday”, which few expect first, but which is similar to “Monday”.
    monkeypatch.setattr(RelatedWords, "_expected_after", lambda *_: {"fast": 4.0, "discover": 0.01})
    assert RelatedWords(language_model).of("the", None)["discover"] == pytest.approx(1 / 1.25**0.5, abs=0.05)


def test_a_description_is_computed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    related, asked = RelatedWords(world.language_model), list[str]()
    compute = related._after_descriptions

    def counted(texts: Sequence[str], start_token: str | None) -> torch.Tensor:
        asked.extend(texts)
        return compute(texts, start_token)

    monkeypatch.setattr(related, "_after_descriptions", counted)
    first = related.of("the fox", None)
    first["changed"] = 1.0
    assert "changed" not in related.of("the fox", None)
    assert asked.count("the fox") == 1
