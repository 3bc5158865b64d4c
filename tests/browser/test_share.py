"""Share in a real browser: an offline page, a picture and Markdown of what a page shows."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

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


def test_layers_and_a_comparison_are_shared(page: Page) -> None:
    for path, name in (("layers?", "layers"), ("texts?second=One night&", "difference")):
        page.goto(f"/{path}run={RUN}&prompt=One day")
        saved = shared(page, "HTML page")
        assert saved.name == f"{RUN}-{name}.html"
        assert f"mxd route {RUN} &#x27;One day&#x27;" in saved.read_text("utf-8")


def test_the_slider_and_both_texts_come_first_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/steering?run={RUN}&prompt=One day&edits={ANSWERING}:add:1.5")
    expect(page.get_by_role("heading", name="Steered")).to_be_in_viewport()
    page.get_by_role("button", name="I want it to say").click()
    tops = [
        page.locator(part).first.bounding_box()["y"]  # type: ignore[index]
        for part in (".chat-strengths input", ".stream-pane", ".find")
    ]
    assert tops == sorted(tops)
    assert tops[1] < 400
