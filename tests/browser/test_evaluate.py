"""Evaluate: the verdict and health come first, everything else is folded, and former addresses lead to it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sample import RUN

pytestmark = pytest.mark.browser


def test_former_addresses_open_their_part(page: Page) -> None:
    page.goto(f"/faithfulness?run={RUN}")
    expect(page).to_have_url(re.compile(rf"/evaluate\?run={RUN}#faithfulness$"))
    metrics = page.get_by_role("region", name="Faithfulness")
    for group in ("Next-token loss", "Routing", "Same greedy continuation"):
        expect(metrics.get_by_role("rowheader", name=group, exact=True)).to_be_visible()
    page.get_by_role("navigation", name="Chapters").get_by_role("link", name="Frontier").click()
    expect(page).to_have_url(re.compile("#frontier$"))
    expect(page.get_by_role("region", name="Points of the frontier")).to_be_visible()
    expect(metrics).to_be_visible()
    page.locator("summary").get_by_text("Frontier", exact=True).click()
    expect(page).not_to_have_url(re.compile("#"))
    page.goto(f"/health?run={RUN}")
    health = page.get_by_role("region", name="Metrics of health")
    expect(health.get_by_role("row", name="Highest density")).to_be_visible()
    page.goto(f"/faithfulness?run={RUN}")
    metrics.get_by_role("link", name="Variance explained").click()
    expect(page).to_have_url(re.compile(r"/glossary\?.*#variance_explained$"))
