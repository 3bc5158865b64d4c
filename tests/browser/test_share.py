"""Share in a real browser: an offline page, a picture and Markdown of what a page shows."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.rest import hover
from tests.browser.sample import ANSWERING, RUN

pytestmark = pytest.mark.browser


def shared(page: Page, name: str) -> Path:
    """Download what the page shows in a format."""
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=name).click()
    return Path(download.value.path()).rename(Path(download.value.path()).with_name(download.value.suggested_filename))


def test_an_expert_is_shared_as_an_offline_page_and_as_a_picture(page: Page, browser: Browser) -> None:
    page.goto(f"/experts/{ANSWERING}?run={RUN}")
    saved = shared(page, "HTML page")
    assert saved.name == f"{RUN}-expert-{ANSWERING}.html"
    offline = browser.new_context(offline=True).new_page()
    offline.goto(saved.as_uri())
    hover(offline.locator("[data-tip]").first)
    assert RUN in offline.locator("footer").inner_text()
    offline.context.close()
    picture = shared(page, "PNG card").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (1200, 630)
    assert len(picture) > 10_000  # not blank
