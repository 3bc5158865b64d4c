"""Search by effect and by passage: from a wish to a steered text, and from a text to its experts."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sample import RUN

pytestmark = pytest.mark.browser

SECONDS = 60_000


def test_from_a_wish_to_a_steered_text(page: Page) -> None:
    page.goto(f"/search?run={RUN}")
    page.get_by_role("radio", name="I want it to say …").click()
    search = page.get_by_role("region", name="Search by effect")
    find = search.get_by_role("button", name="Find experts")
    expect(find).to_be_disabled()

    page.get_by_role("textbox", name="Prompt").click()
    page.keyboard.type("The little girl said")
    search.get_by_role("textbox", name="I want it to say").click()
    page.keyboard.type("the | that")
    find.click()
    expect(search.get_by_role("status")).to_contain_text(
        "“the” or “that” follows with a probability of", timeout=SECONDS
    )
    rows = search.locator("tbody tr")
    expect(rows.first).to_be_visible(timeout=SECONDS)
    assert rows.count() > 3
    rows.first.get_by_role("button", name=re.compile("in the tray")).click()
    page.get_by_role("link", name="Open in Steer").click()
    expect(rows.first).to_be_visible(timeout=SECONDS)
    steered = page.get_by_role("region", name="Steered", exact=True)
    expect(steered).to_contain_text(re.compile(r"done, \d+ tokens"), timeout=SECONDS)
    expect(rows.first.locator('[data-name^="price"]')).to_have_text([re.compile(r"[\d.]+")] * 2, timeout=SECONDS)
    measured = [float(text.replace("−", "-")) for text in rows.locator('[data-name^="measured"]').all_inner_texts()]
    assert measured == sorted(measured, reverse=True)
    address = page.url
    page.goto("/glossary")
    page.goto(address)
    expect(search.get_by_role("textbox", name="I want it to say")).to_have_value("the | that")
    expect(rows).to_have_count(len(measured), timeout=SECONDS)


def test_an_empty_search_offers_words_that_find_experts(page: Page) -> None:
    page.goto(f"/search?run={RUN}")
    main = page.get_by_role("main")
    expect(main.get_by_role("heading", name="Most steerable experts, nats")).to_be_visible()
    expect(main.get_by_role("button", name=re.compile("^Expert .* in the tray$")).first).to_be_visible()
    main.get_by_role("button", name="numbers", exact=True).click()
    expect(page).to_have_url(re.compile("text=numbers"))
    expect(main.get_by_role("region", name="Matching experts")).to_be_visible(timeout=SECONDS)


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
