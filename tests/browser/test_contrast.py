"""Two pasted texts are compared, and the experts of either direction have examples from both."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

ENGLISH = "\n\n".join(["He said that the old man went home."] * 12)
SPANISH = "\n\n".join(["me gusta el libro de la casa."] * 12)


def test_pasted_texts_are_compared(page: Page) -> None:
    page.goto("/contrast")
    start = page.get_by_role("button", name="Compare")
    expect(start).to_be_disabled()
    page.get_by_role("textbox", name="Documents of text A").fill(ENGLISH)
    page.get_by_role("textbox", name="Documents of text B").fill(SPANISH)
    expect(page.get_by_text("12 documents")).to_have_count(2)
    start.click()
    table = page.get_by_role("region", name="Experts that tell the texts apart")
    expect(table).to_be_visible(timeout=60_000)  # the language model is loaded on first use
    expect(page.get_by_text("random assignments of documents")).to_be_visible()
    expect(table.get_by_role("region", name="Examples in A: A")).to_contain_text(re.compile("man|home|said|went|old"))
    page.get_by_role("radio", name=re.compile("More often in B: [1-9]")).click()
    expect(page).to_have_url(re.compile("more_in=b"))
    expect(table.get_by_role("region", name="Examples in B: B")).to_contain_text(re.compile("libro|casa|gusta"))
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename.endswith(".csv")
    table.locator("tbody").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+"))
