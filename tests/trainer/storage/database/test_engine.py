"""Databases: opening and creating them, words found in SQLite and in PostgreSQL, packed columns."""

import os
import sqlite3
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import Session

from mxd.api.loading import opened_read_only
from mxd.backend.cli.main import run
from mxd.backend.database.engine import open_database
from mxd.backend.queries.search import words_of
from mxd.trainer.errors import DamagedDatabaseError, UserError
from mxd.trainer.storage.database.column_types import (
    ACTIVE,
    TOKEN_IDS,
    PackedActive,
    PackedPairs,
    PackedTokenIds,
    count_packed,
    pack,
    pack_active,
    pack_all,
    unpack_active,
    unpack_all,
)
from mxd.trainer.storage.database.open import OF_TRAINER, open_trainer_database, sqlite_url
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


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense:secret", "Invalid database URL"),
        ("mysql://me:secret@host/x", "Unsupported database: mysql"),
        ("postgresql+other://me:secret@host/x", "pip install"),
        ("postgresql://me:secret@127.0.0.1:1/x", "Check that the server is running"),
    ],
)
def test_error_messages_hide_the_password(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        open_trainer_database(url)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_newer_version_is_rejected(postgresql_server: Server) -> None:
    url = postgresql_server.new()
    engine = open_trainer_database(url)
    with engine.begin() as connection:
        connection.execute(OF_TRAINER.table.update().values(version_num="99"))
    engine.dispose()
    for message in (f"version 99; this version needs {OF_TRAINER.newest}", "Install that version"):
        with pytest.raises(UserError, match=message):
            open_trainer_database(url)


@pytest.mark.parametrize("name", ["what?", "50%25", "a b#ü"])
def test_the_file_is_in_its_folder_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    open_database(sqlite_url(tmp_path / name)).dispose()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.sqlite")] == [f"{name}/mxd.sqlite"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_several_processes_may_create_a_database(kind: str, tmp_path: Path, postgresql_server: Server) -> None:
    url = sqlite_url(tmp_path) if kind == "sqlite" else postgresql_server.new()
    with ThreadPoolExecutor(4) as pool:
        for engine in pool.map(lambda _: open_database(url), range(4)):
            engine.dispose()


def test_a_missing_database_is_reported(postgresql_server: Server) -> None:
    with pytest.raises(UserError, match="does not exist"):
        open_trainer_database(postgresql_server.url("none"))


@pytest.mark.parametrize(
    "statement",
    ["CREATE TRIGGER evil AFTER INSERT ON notes BEGIN DELETE FROM notes; END", "CREATE VIEW evil AS SELECT 1"],
)
def test_a_foreign_file_with_triggers_or_views_is_rejected(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "mxd.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute(statement)
        connection.commit()
    with pytest.raises(UserError, match=r"was not made by this program: it has the (trigger|view) evil"):
        open_trainer_database(f"sqlite:///{file}")


def test_schemas_are_not_trusted(tmp_path: Path) -> None:
    engine = open_trainer_database(f"sqlite:///{tmp_path / 'mxd.sqlite'}")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0
        assert connection.exec_driver_sql("PRAGMA cell_size_check").scalar() == 1
    engine.dispose()


def damage(file: Path) -> None:
    """Overwrite the pages of the largest table."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE filler (text)")
        connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 500,) for _ in range(200)])
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        pages = connection.execute("SELECT pageno FROM dbstat WHERE name = 'filler'").fetchall()
    content = bytearray(file.read_bytes())
    for (page,) in pages[1:]:
        content[(page - 1) * size : (page - 1) * size + 64] = b"\xff" * 64
    file.write_bytes(content)


def test_a_damaged_file_of_somebody_else_is_rejected_but_can_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mxd.sqlite"
    open_database(f"sqlite:///{file}").dispose()
    damage(file)
    open_database(f"sqlite:///{file}").dispose()  # a file of our own is opened without reading all of it
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(DamagedDatabaseError):
        open_database(f"sqlite:///{file}")
    with pytest.raises(DamagedDatabaseError), opened_read_only(f"sqlite:///{file}"):
        pass
    assert run(["database", "check", "--data", str(tmp_path)]) == 1
    assert "SQLite reports a damaged file" in capsys.readouterr().out


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


DIALECT = sqlite.dialect()
NUMBERS = st.integers(0, 2**40)


def leb128(number: int) -> bytes:
    return bytes([number & 127 | 128]) + leb128(number >> 7) if number > 127 else bytes([number])


@given(st.lists(NUMBERS, max_size=200))
def test_numbers_packed_together_are_those_packed_one_by_one(numbers: list[int]) -> None:
    packed, ends = pack_all(np.array(numbers, np.int64))
    assert packed == pack(numbers) == b"".join(map(leb128, numbers))
    assert ends.tolist() == [len(pack(numbers[: number + 1])) for number in range(len(numbers))]


@pytest.mark.parametrize(("number", "error"), [(-1, ValueError), (1.5, TypeError), (2**64, OverflowError)])
def test_only_non_negative_integers_are_packed(number: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pack([3, number])


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 5)), min_size=1, max_size=20))
def test_examples_packed_together_are_those_packed_one_by_one(ranges: list[tuple[int, int]]) -> None:
    active = np.zeros(205, ACTIVE)
    active["position"], active["rank"] = np.arange(205) * 300, np.arange(205)
    active["activation"] = np.linspace(0, 1, 205)
    low = np.array([start for start, _ in ranges])
    high = low + np.array([count for _, count in ranges])
    column, each = PackedActive(), [active[start:end] for start, end in zip(low, high, strict=True)]
    packed = pack_active(active, low, high)
    assert packed == [column.process_bind_param(one.tobytes(), DIALECT) for one in each]
    assert [unpack_active(one) for one in packed] == [one.tolist() for one in each]


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), NUMBERS), max_size=200))
def test_token_ids_and_pairs_round_trip(pairs: list[tuple[int, int]]) -> None:
    ids, lists = np.array([first for first, _ in pairs], TOKEN_IDS).tobytes(), [list(pair) for pair in pairs]
    for column, value in ((PackedTokenIds(), ids), (PackedPairs(), lists)):
        assert column.process_result_value(column.process_bind_param(value, DIALECT), DIALECT) == value


@given(st.lists(st.lists(NUMBERS, max_size=9), max_size=9))
def test_lists_are_decoded_in_one_call(lists: list[list[int]]) -> None:
    packed = [pack(numbers) for numbers in lists]
    ends = np.cumsum([0, *map(len, packed)], dtype=np.int64)
    assert unpack_all(b"".join(packed)).tolist() == [number for numbers in lists for number in numbers]
    assert count_packed(b"".join(packed), ends).tolist() == np.cumsum([0, *map(len, lists)]).tolist()


@pytest.mark.parametrize("count", [0, 1, 127, 128, 16_383, 16_384, 65_536])
def test_an_expert_may_be_active_on_every_token_of_a_sequence(count: int) -> None:
    active_P = np.zeros(count, ACTIVE)
    active_P["position"] = np.arange(count)
    active_P["activation"] = 0.5
    (packed,) = pack_active(active_P, np.array([0]), np.array([count]))
    assert unpack_active(packed) == [(position, 0.5, 0) for position in range(count)]
