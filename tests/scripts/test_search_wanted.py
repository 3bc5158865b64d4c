"""Words and passages for searches by effect."""

from __future__ import annotations

from scripts.search_wanted import CONTEXT_WORDS, MIN_DOCUMENTS, draw


def test_passages_of_a_word_come_from_different_documents() -> None:
    texts = [f"usual excluded {f'document{number} ' * 2 * CONTEXT_WORDS}" for number in range(6)]
    rare = ["scarce"] * (MIN_DOCUMENTS - 1)
    tasks = draw([*texts, *rare], lambda wanted: wanted != " excluded", 1)
    assert [task.wanted for task in tasks] == [" usual"]
    (task,) = tasks
    sources = [passage.split()[-1] for passage in (*task.searched, *task.measured)]
    assert len(set(sources)) == len(sources) == 4
    assert {len(passage.split()) for passage in task.measured} == {CONTEXT_WORDS}
    assert tasks == draw([*texts, *rare], lambda wanted: wanted != " excluded", 1)
