"""Every page and overlay is accessible in every look and loads in place; failed requests can be retried."""

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from mxd.trainer.evaluation.evaluation_metrics import routing_warning
from tests.browser.conftest import ANSWERING, RUN, OpenPage
from tests.browser.rest import ALL, AT_REST, COLOURS, LAYOUT, expect_accessible, holding, settle, violations
from tests.helpers.processes import wait_for

pytestmark = pytest.mark.browser

PROMPT = quote("The little girl said that she was hungry.")
WIDE, PHONE, HEIGHT = 1440, 390, 844
MAX_SHIFT = 0.1
"""The limit that web.dev calls good."""
SUM_SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


class Place(NamedTuple):
    """A page: its address below the server's, what it is for, and the width of its window while it loads."""

    address: str
    shown: Callable[[Page], Locator]
    width: int = WIDE


PLACES = {
    "home": Place("/", lambda page: page.get_by_role("group", name="Steered text")),
    "runs": Place("/runs", lambda page: page.get_by_role("link", name="second", exact=True)),
    "run": Place(f"/runs/{RUN}", lambda page: page.get_by_role("heading", name=RUN)),
    "experts": Place(f"/experts?run={RUN}", lambda page: page.get_by_role("row").nth(20)),
    "expert": Place(
        f"/experts/{ANSWERING}?run={RUN}",
        lambda page: page.get_by_role("group", name="Example 1", exact=True).first,
        PHONE,
    ),
    "routing": Place(
        f"/routing?run={RUN}&prompt={PROMPT}", lambda page: page.get_by_role("table", name="Activations"), PHONE
    ),
    "circuits": Place(f"/circuits?run={RUN}&prompt={PROMPT}", lambda page: page.get_by_text("How this is measured")),
    "no-prompt": Place("/steering", lambda page: page.get_by_text("Type a prompt to continue"), PHONE),
    "steering": Place(
        f"/steering?run={RUN}&prompt={PROMPT}&edits={ANSWERING}:add:4&tokens=16",
        lambda page: page.get_by_role("group", name="Steered text").get_by_role("button").nth(12),
    ),
    "evaluate": Place(f"/evaluate?run={RUN}", lambda page: page.get_by_role("region", name="Metrics by run")),
    "faithfulness": Place("/faithfulness", lambda page: page.get_by_role("region", name="Faithfulness")),
    "not-evaluated": Place("/evaluate?run=second", lambda page: page.get_by_text("mxd evaluate").first),
    "probing": Place("/probing", lambda page: page.get_by_role("region", name="ROC-AUC").first),
    "unprobed": Place(
        "/probing?run=second", lambda page: page.get_by_text(re.compile("^No labels of your own")).first, PHONE
    ),
    "search": Place("/search?text=the", lambda page: page.get_by_role("region", name="Matching experts")),
    "glossary": Place("/glossary#density", lambda page: page.get_by_text("A dead expert is never active.")),
    "not-found": Place("/nowhere", lambda page: page.get_by_role("heading", name="Page not found")),
}
HIDDEN_WORDS = """() => {
    const paper = getComputedStyle(document.body).backgroundColor;
    const words = [...document.querySelectorAll(".plot svg text")];
    return words.filter((word) => getComputedStyle(word).fill === paper).length;
}"""
"""Counts words in figures that have the colour of what they stand on; axe does not look into drawings."""


def check_looks(page: Page, shown: Callable[[Page], Locator], other_width: int = PHONE) -> None:
    """Check size, accessibility and figures of the open page in both themes and in a window of another width.

    One load serves all three looks: changing them on an open page also tests that the page follows the change.
    """
    check_look(page, shown, ALL)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    check_look(page, shown, COLOURS)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_viewport_size({"width": other_width, "height": HEIGHT})
    check_look(page, shown, LAYOUT)


def check_look(page: Page, shown: Callable[[Page], Locator], rules: str) -> None:
    expect(shown(page)).to_be_visible()
    settle(page)
    # Figures follow a moment after the window. Not wait_for_function, which polls with eval, which the policy forbids.
    wait_for(lambda: page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
    assert violations(page, rules) == []
    wait_for(lambda: page.evaluate(HIDDEN_WORDS) == 0)  # figures take the colours of another look a moment later


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_page_loads_in_place_and_is_accessible_in_every_look(page: Page, place: Place) -> None:
    page.set_viewport_size({"width": place.width, "height": HEIGHT})
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    page.add_init_script(SUM_SHIFTS)
    page.goto(place.address)
    expect(place.shown(page)).to_be_visible()
    settle(page)  # not networkidle: the price of an edit is measured for many seconds
    assert page.evaluate("window.shift") <= MAX_SHIFT
    check_looks(page, place.shown, PHONE if place.width == WIDE else WIDE)
    expect(page).to_have_title(re.compile("MxD Explorer$"))


def test_a_page_warns_if_the_routing_does_little(page: Page) -> None:
    warning = routing_warning(RUN, 0.31, 8192)
    assert warning is not None and routing_warning(RUN, 0.5, 8192) is None

    def answer(route: Route) -> None:
        runs = route.fetch().json()
        for run in runs["runs"]:
            run["routing_warning"] = warning
        route.fulfill(json=runs)

    page.route("**/api/runs", answer)
    page.goto(f"/routing?run={RUN}")
    expect_accessible(page.get_by_role("note").filter(has_text=warning))
    page.get_by_role("navigation", name="Places").get_by_role("link", name="Explore").click()
    expect(page.get_by_role("note").filter(has_text=warning)).to_be_visible()


@pytest.mark.parametrize("address", ["/runs", "/routing?run=demo-l3-k16&prompt=One+day"])
def test_failed_requests_show_an_error_and_can_be_retried(page: Page, forgiven: list[str], address: str) -> None:
    forgiven += ["500", "503", "console", "Failed to load resource"]
    failing = True
    refused = '{"error": {"code": "busy", "message": "The server is busy; try again in a moment.", "detail": {}}}'

    def answer(route: Route) -> None:
        if failing:
            route.fulfill(status=503, content_type="application/json", body=refused)
        else:
            route.continue_()

    page.route(re.compile(r"/api/(runs$|runs/demo-l3-k16/routing)"), answer)
    page.goto(address)
    alert = page.get_by_role("alert").first
    expect(alert).to_contain_text("The server is busy; try again in a moment.")
    assert violations(page) == []
    failing = False
    alert.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("table").first).to_be_visible()


def test_a_failed_script_download_shows_an_error_until_the_server_is_back(page: Page, forgiven: list[str]) -> None:
    forgiven += ["Failed to load", "net::ERR_FAILED", "Unable to preload", "imported module", "could not be loaded"]
    page.goto("/experts?run=demo-l3-k16")
    expect(page.get_by_role("table").first).to_be_visible()
    page.route(re.compile(r"/assets/"), lambda route: route.abort())
    page.get_by_role("navigation").get_by_role("link", name="Runs").first.click()
    expect(page.get_by_role("alert")).to_contain_text("could not be loaded")
    expect(page.get_by_role("alert").get_by_role("button", name="Try again")).to_be_visible()
    page.unroute_all()
    expect(page.get_by_role("link", name="demo-l3-k16").first).to_be_visible()


POSITIONS = """[...document.querySelectorAll(".bar > :not(.sr), main section, main li")].filter(
    element => element.getClientRects().length  // a button that is hidden on phones has no place
).map(element => {
    const {x, y} = element.getBoundingClientRect();
    return [element.className || element.textContent, Math.round(x + scrollX), Math.round(y + scrollY)];
})"""


@pytest.mark.parametrize("width", [WIDE, PHONE], ids=["wide", "narrow"])
def test_what_an_expert_writes_comes_late_and_moves_nothing(open_page: OpenPage, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 844})
    with holding(page, "**/writes") as held:
        page.goto(f"/experts/{ANSWERING}?run={RUN}")
        example = page.get_by_role("group", name="Example 1", exact=True).first
        expect(example).to_be_visible()
        expect(page.get_by_role("region", name="Steer here")).to_be_visible()
        expect(page.locator(".bar").get_by_text("Share", exact=True).first).to_be_attached()
        page.evaluate("Promise.all([...document.fonts].map(face => face.load().catch(() => null)))")
        example.evaluate(AT_REST)
        before = page.evaluate(POSITIONS)
        assert held
    expect(page.get_by_role("region", name="Writes")).to_contain_text(re.compile(r"[Oo]n \d+ of its strongest"))
    settle(page)
    assert page.evaluate(POSITIONS) == before


VISITED = ("steering", "chat", "strength", "sessions", "routing", "circuits", "experts", "search", "runs")


def test_the_styles_of_one_page_change_no_other(open_page: OpenPage) -> None:
    """The style sheets of the pages that were opened stay for the whole visit."""
    page = open_page()
    page.goto(f"/glossary?run={RUN}")
    settle(page)
    views = {"chat": "steering", "strength": "steering", "sessions": "steering", "circuits": "routing"}

    def go(place: str) -> None:
        page.locator(f'nav a[href^="/{place}"]').first.click()
        expect(page).to_have_url(re.compile(f"/{place}"))
        expect(page.locator("main h1, main h2").first).to_be_attached()
        settle(page)

    for place in VISITED:
        if views.get(place, place) != place and page.locator(f'nav a[href^="/{place}"]').count() == 0:
            go(views[place])
        go(place)
        if place == "steering":  # the field of an empty tray, with its icon before the words
            icon, field = (
                box.evaluate("box => box.getBoundingClientRect().y + box.getBoundingClientRect().height / 2")
                for box in (page.locator(".add-expert svg"), page.get_by_label("Add an expert"))
            )
            assert abs(icon - field) <= 2
    page.get_by_role("link", name=RUN, exact=True).first.click()
    expect(page.get_by_role("heading", name=RUN)).to_be_visible()
    compare_with_reload(page)
    go("evaluate")
    expect(page.get_by_role("region", name="Metrics by run")).to_be_visible()
    compare_with_reload(page)


def compare_with_reload(page: Page) -> None:
    """Compare the places of the page's parts with those in a visit that begins here."""

    def places() -> object:
        page.wait_for_load_state("networkidle")
        settle(page)
        page.locator("main").evaluate(AT_REST)
        return page.evaluate(POSITIONS)

    before = places()
    page.reload()
    expect(page.locator("main section").first).to_be_visible()
    assert before == places()
