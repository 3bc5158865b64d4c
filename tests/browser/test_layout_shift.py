"""Layout shift while a page loads, and while a long text is written."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.rest import AT_REST, settle
from tests.browser.sample import ANSWERING, RUN

pytestmark = pytest.mark.browser

PROMPT = quote("The little girl said that she was hungry.")
MAX_SHIFT = 0.1
"""The limit that web.dev calls good."""
SUM_SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""
WIDE, NARROW = 1440, 390
PAGES = {
    "circuits": (f"/circuits?run={RUN}&prompt={PROMPT}", "Single experts", WIDE),
    "unprobed": ("/probing?run=second", "has not been probed yet", NARROW),
    "steering": ("/steering", "Type a prompt to continue", NARROW),
    "home": ("/", "Is it faithful?", WIDE),
    "experts": (f"/experts?run={RUN}", "Surprise me", WIDE),
    "tokens": (f"/routing?run={RUN}&prompt={PROMPT}", "stands out on", NARROW),
    "expert": (f"/experts/{ANSWERING}?run={RUN}", "Steer here", NARROW),
}
"""Address of a page, words on it once it has loaded, and the width of its window."""
PLACES = """[...document.querySelectorAll(".bar > :not(.sr), main section, main li")].filter(
    element => element.getClientRects().length  // a button that is hidden on phones has no place
).map(element => {
    const {x, y} = element.getBoundingClientRect();
    return [element.className || element.textContent, Math.round(x + scrollX), Math.round(y + scrollY)];
})"""


def _open(open_page: OpenPage, address: str, width: int) -> Page:
    page = open_page(viewport={"width": width, "height": 844})
    page.add_init_script(SUM_SHIFTS)
    page.goto(address)
    return page


@pytest.mark.parametrize(("address", "words", "width"), PAGES.values(), ids=PAGES)
def test_a_page_loads_in_place(open_page: OpenPage, address: str, words: str, width: int) -> None:
    page = _open(open_page, address, width)
    expect(page.get_by_role("main")).to_contain_text(words)
    page.wait_for_load_state("networkidle")
    settle(page)
    assert page.evaluate("window.shift") <= MAX_SHIFT


@pytest.mark.parametrize("width", [WIDE, NARROW], ids=["wide", "narrow"])
def test_what_an_expert_writes_comes_late_and_moves_nothing(open_page: OpenPage, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 844})
    held: list[Route] = []
    page.route("**/writes", lambda route: held.append(route))
    page.goto(f"/experts/{ANSWERING}?run={RUN}")
    example = page.get_by_role("group", name="Example 1", exact=True).first
    expect(example).to_be_visible()
    expect(page.get_by_role("region", name="Steer here")).to_be_visible()
    expect(page.locator(".bar").get_by_text("Share", exact=True).first).to_be_attached()
    page.evaluate("Promise.all([...document.fonts].map(face => face.load().catch(() => null)))")
    example.evaluate(AT_REST)
    before = page.evaluate(PLACES)
    assert held
    for route in held:
        route.continue_()
    expect(page.get_by_role("region", name="Writes")).to_contain_text(re.compile(r"on \d+ of its strongest"))
    settle(page)
    assert page.evaluate(PLACES) == before


def test_a_long_text_moves_nothing_below_it(open_page: OpenPage) -> None:
    page = _open(open_page, "/runs", NARROW)
    held: list[Route] = []
    page.route("**/api/runs/*/steering", lambda route: held.append(route))
    page.goto(f"/steering?run={RUN}&prompt={PROMPT}&edits={ANSWERING}:add:4&tokens=48")
    below = page.get_by_text("Sampling", exact=True)
    expect(below).to_be_visible()
    expect(page.get_by_text("answering a question").first).to_be_visible()
    page.evaluate("Promise.all([...document.fonts].map(face => face.load().catch(() => null)))")
    top = "pane => pane.getBoundingClientRect().top + scrollY"
    before = below.evaluate(top)
    for route in held:
        route.continue_()
    expect(page.get_by_text("done, 48 tokens").first).to_be_visible()
    assert below.evaluate(top) == before
