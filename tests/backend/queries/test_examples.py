"""Contexts over HTTP: paging, and what comes out of the packed columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from mxd.backend.queries.examples import active_in
from mxd.trainer.storage.database.column_types import ACTIVE, PackedActive
from tests.helpers.databases import PER_EXPERT, SENTENCES
from tests.helpers.language_models import byte_tokenizer

PATH = "/api/runs/first/experts/9/examples"


def all_contexts(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    """Every context of every page."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get(PATH, params={**query, **({"cursor": cursor} if cursor else {})}).json()
        found += page["examples"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, PER_EXPERT, 100])
def test_pages_contain_all_examples_in_order(client: TestClient, limit: int) -> None:
    found = all_contexts(client, limit=limit)
    places = [(context["bin"], context["rank"]) for context in found]
    assert places == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]


def test_examples_of_one_bin(client: TestClient) -> None:
    assert {context["bin"] for context in all_contexts(client, bin=1, limit=2)} == {1}
    assert all_contexts(client, bin=2) == []


def test_tokens_are_those_of_the_sequence(client: TestClient) -> None:
    for context in all_contexts(client):
        sentence = SENTENCES[context["sequence"]]
        assert context["token_ids"] == byte_tokenizer()(sentence)["input_ids"][:16]
        assert "".join(context["tokens"]) == sentence[:16]
        assert len(context["tokens"]) == len(context["token_ids"])


def test_the_peak_is_among_the_active_tokens(client: TestClient) -> None:
    for context in all_contexts(client):
        assert [context["position"], context["activation"], 2] in context["active"]


tokens = st.tuples(st.integers(0, 2**16 - 1), st.floats(2.0**-60, 2.0**60, width=32), st.integers(0, 2**16 - 1))


@given(st.lists(tokens, max_size=20))
def test_packed_tokens_round_trip(values: list[tuple[int, float, int]]) -> None:
    values = sorted(values, key=lambda value: value[0])  # by position, as they are written
    packed = PackedActive().process_bind_param(np.array(values, ACTIVE).tobytes(), sqlite.dialect())
    assert packed is not None
    found = active_in(packed)
    assert [(position, rank) for position, _, rank in found] == [(position, rank) for position, _, rank in values]
    assert [activation for _, activation, _ in found] == pytest.approx([value for _, value, _ in values], rel=1e-6)
