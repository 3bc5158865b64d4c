"""Search by effect: from an empty page to a steered text, in four clicks."""

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
