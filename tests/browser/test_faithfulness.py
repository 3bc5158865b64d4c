"""Faithfulness: the main results come first, and a phone shows each metric as stacked lines."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.conftest import OpenPage
from tests.browser.sample import RUN

pytestmark = pytest.mark.browser

ADDRESS = f"/faithfulness?run={RUN}"


def test_continuations_are_part_of_the_verdict(page: Page) -> None:
    page.goto(ADDRESS)
    lengths = page.get_by_role("list", name="Equal continuations by number of tokens").get_by_role("listitem")
    expect(lengths).to_have_count(6)
    expect(lengths.last).to_have_text(re.compile(r"^32 tokens[\d.]+ %$"))
    for bar in lengths.locator(".filled").all():  # drawn as long as the figure says
        drawn, said = bar.evaluate(
            "bar => [bar.offsetWidth / bar.parentElement.offsetWidth, parseFloat(bar.style.width)]"
        )
        assert abs(100 * drawn - said) < 2
    results = page.locator("dl").filter(has=page.get_by_text("Routing share"))
    expect(results.get_by_text(re.compile("95 % interval"))).to_have_count(4)
    metrics = page.get_by_role("region", name="Faithfulness")
    for group in ("Next-token loss", "Routing", "Same greedy continuation"):
        expect(metrics.get_by_role("rowheader", name=group, exact=True)).to_be_visible()
    metrics.get_by_role("link", name="Variance explained").click()
    expect(page).to_have_url(re.compile(r"/glossary\?.*#variance_explained$"))


def test_descriptions_have_the_width_of_a_phone(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(ADDRESS)
    row = page.get_by_role("region", name="Faithfulness").get_by_role("row").filter(has_text="Top-1 agreement")
    description = row.get_by_text("share of tokens with the same")
    box = description.bounding_box()
    assert box is not None and box["width"] > 300
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page) == []
