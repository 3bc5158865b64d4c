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
PAGES = {
    "circuits": (f"/circuits?run={RUN}&prompt={PROMPT}", "Single experts"),
    "unprobed": ("/probing?run=second", "has not been probed yet"),
    "steering": ("/steering", "Type a prompt to continue"),
    "home": ("/", "Is it faithful?"),
    "experts": (f"/experts?run={RUN}", "Surprise me"),
    "tokens": (f"/routing?run={RUN}&prompt={PROMPT}", "Experts by token"),
    "expert": (f"/experts/{ANSWERING}?run={RUN}", "Steer here"),
}
"""Address of a page, and words on it once it has loaded."""
PLACES = """[...document.querySelectorAll(".bar > :not(.sr), main section, main li")].filter(
    element => element.getClientRects().length  // a button that is hidden on phones has no place
).map(element => {
    const {x, y} = element.getBoundingClientRect();
    return [element.className || element.textContent, Math.round(x + scrollX), Math.round(y + scrollY)];
})"""
WIDTHS = {"wide": 1440, "narrow": 390}


def _open(open_page: OpenPage, address: str, width: int, height: int = 844) -> Page:
    page = open_page(viewport={"width": width, "height": height})
    page.add_init_script(SUM_SHIFTS)
    page.goto(address)
    return page


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize(("address", "words"), PAGES.values(), ids=PAGES)
def test_a_page_loads_in_place(open_page: OpenPage, address: str, words: str, width: int) -> None:
    page = _open(open_page, address, width)
    expect(page.get_by_role("main")).to_contain_text(words)
    page.wait_for_load_state("networkidle")
    settle(page)
    assert page.evaluate("window.shift") <= MAX_SHIFT


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
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


@pytest.mark.parametrize("viewport", [(390, 844), (1280, 720)], ids=["narrow", "low"])
def test_a_long_text_moves_nothing_below_it(open_page: OpenPage, viewport: tuple[int, int]) -> None:
    page = _open(open_page, "/runs", *viewport)
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
