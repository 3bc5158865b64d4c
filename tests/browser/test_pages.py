"""Every page in both themes and on a narrow screen: content, width, accessibility."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, Route, ViewportSize, expect

from mxd.trainer.evaluation.evaluation_metrics import routing_warning
from tests.browser.axe import ALL, COLOURS, LAYOUT, violations
from tests.browser.rest import settle
from tests.browser.sample import ANSWERING
from tests.helpers.processes import wait_for

pytestmark = pytest.mark.browser

PROMPT = quote("The little girl said that she was hungry.")
NARROW: ViewportSize = {"width": 390, "height": 844}


class Place(NamedTuple):
    """A page: its address below the server's, and what it is for."""

    address: str
    shown: Callable[[Page], Locator]


PLACES = {
    "home": Place("/", lambda page: page.get_by_role("group", name="Steered text")),
    "runs": Place("/runs", lambda page: page.get_by_role("link", name="second", exact=True)),
    "run": Place("/runs/demo-l3-k16", lambda page: page.get_by_role("heading", name="demo-l3-k16")),
    "experts": Place("/experts", lambda page: page.get_by_role("row").nth(20)),
    "expert": Place(
        f"/experts/{ANSWERING}", lambda page: page.get_by_role("group", name="Example 1", exact=True).first
    ),
    "routing": Place(f"/routing?prompt={PROMPT}", lambda page: page.get_by_role("table", name="Activations")),
    "circuits": Place(
        f"/circuits?run=demo-l3-k16&prompt={PROMPT}", lambda page: page.get_by_role("group", name="Circuit")
    ),
    "steering": Place(
        f"/steering?run=demo-l3-k16&prompt={PROMPT}&edits={ANSWERING}:add:4&tokens=16",
        lambda page: page.get_by_role("group", name="Steered text").get_by_role("button").nth(12),
    ),
    "evaluate": Place("/evaluate?run=demo-l3-k16", lambda page: page.get_by_role("region", name="Metrics by run")),
    "faithfulness": Place("/faithfulness", lambda page: page.get_by_role("region", name="Faithfulness")),
    "not-evaluated": Place("/evaluate?run=second", lambda page: page.get_by_text("mxd evaluate").first),
    "probing": Place("/probing", lambda page: page.get_by_role("region", name="ROC-AUC").first),
    "search": Place("/search?text=the", lambda page: page.get_by_role("region", name="Matching experts")),
    "glossary": Place("/glossary#density", lambda page: page.get_by_text("A dead expert is never active.")),
    "not-found": Place("/nowhere", lambda page: page.get_by_role("heading", name="Page not found")),
}


def hidden_words(page: Page) -> int:
    """Words in figures that have the colour of what they stand on; axe does not look into drawings."""
    return int(
        page.evaluate(
            """() => {
                const paper = getComputedStyle(document.body).backgroundColor;
                const words = [...document.querySelectorAll(".plot svg text")];
                return words.filter((word) => getComputedStyle(word).fill === paper).length;
            }"""
        )
    )


def check_looks(page: Page, shown: Callable[[Page], Locator]) -> None:
    """Check size, accessibility and figures of the open page in both themes and on a narrow screen.

    One load serves all three looks: changing them on an open page also tests that the page follows the change.
    """
    check_look(page, shown, ALL)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    check_look(page, shown, COLOURS)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_viewport_size(NARROW)
    check_look(page, shown, LAYOUT)


def fits(page: Page) -> bool:
    """True if the page is no wider than the window; figures follow a moment after the window."""
    # Not wait_for_function, which polls with eval; the content security policy forbids that.
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def check_look(page: Page, shown: Callable[[Page], Locator], rules: str) -> None:
    """Check the open page as it is."""
    expect(shown(page)).to_be_visible()
    settle(page)
    wait_for(lambda: fits(page))
    assert violations(page, rules) == []
    wait_for(lambda: hidden_words(page) == 0)  # figures take the colours of another look a moment later


@pytest.mark.parametrize("name", PLACES)
def test_page_is_accessible_in_every_look_and_warns_if_the_routing_does_little(page: Page, name: str) -> None:
    warning = routing_warning("demo-l3-k16", 0.31, 8192)
    assert warning is not None and routing_warning("demo-l3-k16", 0.5, 8192) is None

    def answer(route: Route) -> None:
        runs = route.fetch().json()
        for run in runs["runs"]:
            run["routing_warning"] = warning
        route.fulfill(json=runs)

    page.route("**/api/runs", answer)
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    page.goto(PLACES[name].address)
    check_looks(page, PLACES[name].shown)
    expect(page.get_by_role("note").filter(has_text=warning)).to_be_visible()
    expect(page).to_have_title(re.compile("MxD Explorer$"))
