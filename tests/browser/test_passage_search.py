"""Experts that fire on a passage, or on one token of it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

PASSAGE = "He said: me gusta el libro. Then he went home."


def counted(page: Page) -> int:
    """How many experts the answer says fire."""
    words = page.locator(".search-bar .count").inner_text()
    found = re.search(r"([\d,]+) experts? fires? on", words)
    assert found is not None, words
    return int(found[1].replace(",", ""))


def test_experts_of_a_passage_and_of_one_token_are_found(page: Page) -> None:
    page.goto("/search")
    page.get_by_role("radio", name="A passage").click()
    page.get_by_role("textbox", name="Passage").fill(PASSAGE)
    page.get_by_role("button", name="Run through the model").click()
    expect(page.locator(".search-bar .count")).to_contain_text("fire on the passage")
    expect(page).to_have_url(re.compile(r"text=He\+said"))
    whole = counted(page)
    tokens = page.get_by_role("group", name="Tokens of the passage").get_by_role("button")
    tokens.filter(has_text="gust").click()
    expect(page.locator(".search-bar .count")).to_have_text(re.compile(r"^([1-9]|1[0-6]) experts? fires? on the token"))
    assert 0 < counted(page) <= 16 < whole
    page.get_by_role("button", name="Density ≤ 1 % only").click()
    expect(page).to_have_url(re.compile(r"max_density="))
    page.reload()
    expect(page.locator(".search-bar .count")).to_contain_text("on the token")
    first = page.locator("table tbody tr").first
    expect(first).to_be_visible()
    first.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+"))
