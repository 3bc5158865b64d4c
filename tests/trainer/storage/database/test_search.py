"""Searching words in SQLite and in PostgreSQL: the same words are found in both."""

import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from mxd.backend.queries.search import words_of
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.search import (
    SYMBOL,
    best_experts_with,
    delete_search,
    experts_with,
    insert_search,
    make_search_table,
    search_body,
    split_words,
)
from tests.helpers.servers.postgresql import Server

WORDS = (
    *("fox", "Foxes", "élan", "über", "a", "b2", "the", "don't", "x_y", "ΣΑΣ", "狐", "café", "1.5"),
    *("北京大学", "สวัสดี", "😀", "C++", "→"),
)
SEVERAL = ("don't", "x_y", "1.5", "北京大学", "京大", "สวัส", "สวัสดี", "C++")
SINGLE = sorted({"fo", "do", *WORDS} - set(SEVERAL))
TYPED = st.lists(st.sampled_from(SINGLE), min_size=1, max_size=3) | st.sampled_from(SEVERAL).map(lambda it: [it])
"""Among others, a word that is several is as near only to a word or two."""
BODIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join)


@pytest.fixture(scope="module")
def databases(postgresql_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Engine]]:
    """An empty database in each database."""
    opened = [
        open_trainer_database(sqlite_url(tmp_path_factory.mktemp("searched"))),
        open_trainer_database(postgresql_server.new()),
    ]
    with opened[1].begin() as connection:
        # Documents belong to a run; here there is none.
        connection.execute(text("ALTER TABLE search_documents DROP CONSTRAINT search_documents_run_id_fkey"))
    yield opened
    for database in opened:
        database.dispose()


def found(database: Engine, bodies: dict[int, str], words: list[str]) -> list[int]:
    """Search results in temporary documents."""
    with Session(database) as session:
        delete_search(session, 1)
        make_search_table(session, 1)
        insert_search(session, 1, bodies.items())
        experts: list[int] = sorted(experts_with(session, 1, words).tolist())
        assert sorted(best_experts_with(session, 1, words, "beginning", 100, 100)) == experts
        assert list(best_experts_with(session, 1, words, "beginning", 1, 100)) == experts[:1]
        whole = best_experts_with(session, 1, words, "whole", 100, 100)
        assert set(whole) <= set(experts)
        return [*experts, *sorted(whole)]


@settings(max_examples=60)
@given(st.lists(BODIES, max_size=6), TYPED)
@example(["a a a a a a a a a a a b2", "a a a a a a a a a a a a b2"], ["the", "b2"])
def test_sqlite_and_postgresql_return_the_same_documents(
    databases: list[Engine], bodies: list[str], words: list[str]
) -> None:
    documents = dict(enumerate(bodies))
    one, other = (found(database, documents, words) for database in databases)
    assert one == other


@pytest.mark.parametrize("words", [["fox", "sa"], ["sang", "fox"], ["old", "fox", "sang"], ["fox", "the", "old"]])
def test_near_queries_need_adjacent_words(databases: list[Engine], words: list[str]) -> None:
    near, far = "the old fox sang", "the old fox " + "very " * 12 + "sang"
    apart = search_body(["the old fox", "sang"])
    for database in databases:
        expected = [0] if {"sa", "sang"} & set(words) else [0, 1, 2]
        assert sorted(set(found(database, {0: near, 1: far, 2: apart}, words))) == expected


@pytest.mark.parametrize(("between", "near"), [(10, True), (11, False)])
def test_near_queries_allow_ten_words_between(databases: list[Engine], between: int, near: bool) -> None:
    for database in databases:
        for body in ("left " + "x " * between + "right", "right " + "x " * between + "left"):
            assert found(database, {0: body}, ["left", "right"]) == [0, 0] * near


def test_long_documents_and_words_are_truncated(databases: list[Engine]) -> None:
    body = "\0" + "word " * 20_000 + "x" * 3_000 + " end"
    for database in databases:
        assert found(database, {0: body}, ["word"]) == [0, 0]


def test_words_are_letters_and_digits_and_symbols() -> None:
    assert split_words("Été x1 \0 ΣΑΣ ﬁ é \u200b हिन्दी") == ["ete", "x1", "σασ", "fi", "e", "हिन्दी"]
    assert split_words("L'Été") == ["l", f"{SYMBOL}27", "ete"]
    assert split_words("北京 market、カﾞｶﾞ") == ["北", "京", "market", f"{SYMBOL}3001", "ガ", "ガ"]


# The right answers are those of a search for substrings: each text holds what is typed, or not.
TEXTS = (
    *("我们明天去北京看长城。", "北京很大。", "we saw Beijing", "東京タワーへ行った", "ฉันรักประเทศไทย", "ខ្ញុំស្រឡាញ់កម្ពុជា"),
    *("I 💙 it 👍🏽", "x += 1; y == 2", "if (a != b) { return; }", "C++ and C# cost 5 € → more"),
    *("मुझे हिन्दी पसंद है", "한국어를 배운다"),
)


@pytest.mark.parametrize(
    "typed",
    [
        *("北京", "长城", "看", "北京很", "Beijing", "タワー", "東京", "行った", "ประเทศ", "ไทย", "កម្ពុជា", "京"),
        *("💙", "👍", "+=", "==", "!=", "{", "C++", "C#", "€", "→", "हिन्दी", "한국어"),
    ],
)
def test_every_language_and_symbol_is_found(databases: list[Engine], typed: str) -> None:
    documents = dict(enumerate(TEXTS))
    expected = [number for number, written in documents.items() if typed.casefold() in written.casefold()]
    assert expected
    for database in databases:
        assert sorted(set(found(database, documents, words_of(typed)))) == expected


@pytest.mark.parametrize("typed", ["が", "ガラス", "한국어", "国", "café", "หนู", "हिन्दी", "việt"])
def test_letters_in_parts_are_found(databases: list[Engine], typed: str) -> None:
    """Some systems store letters with their marks and syllables in parts."""
    forms = [unicodedata.normalize(form, typed) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    documents = dict(enumerate([f"{form} xyz" for form in forms]))
    for database in databases:
        for form in forms:
            assert sorted(set(found(database, documents, words_of(form)))) == [0, 1, 2, 3]


def test_documents_are_ranked_by_word_frequency(databases: list[Engine]) -> None:
    for database in databases:
        with Session(database) as session:
            delete_search(session, 1)
            make_search_table(session, 1)
            insert_search(session, 1, [(0, "fox and dog and cat and"), (1, "fox fox fox and dog and cat")])
            insert_search(session, 1, [(expert, "none of this") for expert in range(2, 9)])
            assert best_experts_with(session, 1, ["fox"], "whole", 100, 100) == (1, 0)
