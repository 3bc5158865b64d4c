"""Privacy: passages become a new run; tokens before and after, figures, and where to go from there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.browser.axe import violations
from tests.browser.conftest import OpenPage, Site
from tests.browser.sample import RUN
from tests.browser.test_overlays import THEMES
from tests.helpers.processes import mxd

pytestmark = pytest.mark.browser

PASSAGES = (
    "One day, the little girl went to the park with her mom and saw a big red ball.\n\n"
    "The old bridge over the river was built by the people of the town in the last century."
)
SETTINGS = "steps=6&added=5"
LONG_MS = 90_000
PHONE: ViewportSize = {"width": 390, "height": 844}


MADE = f"{RUN}-private"


@pytest.fixture(scope="module", autouse=True)
def restored(site: Site) -> Iterator[None]:
    """Delete the new run, because other tests count runs."""
    yield
    mxd("remove", MADE, "--yes", "--data", str(site.data), "--database", site.database, "--json", folder=site.data)


def address(run: str, settings: str = SETTINGS) -> str:
    """The page, about a run."""
    return f"/privacy?run={run}&{settings}"


def passage(page: Page, name: str) -> Locator:
    """The first passage's tokens, before or after."""
    return page.get_by_role("group", name=f"Passage {name}").first


def test_protecting_passages_makes_a_run(page: Page, open_page: OpenPage) -> None:
    page.goto(address(RUN))
    start = page.get_by_role("button", name=re.compile("^Fine-tune"))
    expect(start).to_be_disabled()
    expect(page.get_by_role("heading", name="Type passages on which")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("textbox", name="Passages", exact=True).fill(PASSAGES)
    start.click()
    expect(page.get_by_role("status").filter(has_text=re.compile(r"Step \d of 6|Evaluating"))).to_be_visible()
    figures = page.get_by_role("region", name="Result")
    expect(figures).to_be_visible(timeout=LONG_MS)
    expect(figures).to_contain_text(re.compile(r"true next token falls by \d+\.\d points \(2 passages"))
    expect(figures).to_contain_text(re.compile(r"test part of the retain set .*\d nats per token \(95\s% interval"))
    expect(figures.get_by_role("heading", name=f"Probability of the true token with {RUN}: ")).to_be_visible()
    assert "little" not in page.url
    expect(page).to_have_url(re.compile("result=demo-l3-k16-private"))
    for name in ("before", "after"):
        expect(passage(page, name)).to_contain_text("little girl")
    expect(page.get_by_text(re.compile(r"Mean probability of the true token: .* → .* %")).first).to_be_visible()
    token = passage(page, "after").get_by_role("button").nth(6)
    token.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("Most likely token")
    page.get_by_role("radio", name="Entropy").click()
    expect(page).to_have_url(re.compile("by=entropy"))
    rows = page.get_by_role("region", name="Confidence before and after").get_by_role("row")
    for name in ("Chosen passages", "Swapped case", "Retain set", "After the attack"):
        expect(rows.filter(has_text=name)).to_have_count(1)
    cost = page.get_by_role("group", name="Loss increase on the retain set, nats")
    expect(cost.get_by_role("img", name="Step 6")).to_have_count(1)
    expect(cost.get_by_role("img", name="Test part")).to_have_count(1)
    page.mouse.move(5, 5)
    assert violations(page) == []
    with page.expect_download() as taken:
        page.get_by_role("link", name="Export").click()
    assert taken.value.suggested_filename == f"{MADE}.mxd"
    figures.get_by_role("link", name="Routing").click()
    expect(page).to_have_url(re.compile(r"/routing\?run=demo-l3-k16-private"))
    page.goto(address(MADE))
    expect(figures).to_be_visible()
    expect(page.get_by_text("The passages are not stored with this result")).to_be_visible()
    check_on_a_phone(open_page(viewport=PHONE, has_touch=True, is_mobile=True), MADE)


def test_stopping_saves_no_run(page: Page) -> None:
    page.goto(address(RUN, "steps=200"))
    page.get_by_role("textbox", name="Passages", exact=True).fill(PASSAGES)
    page.get_by_role("button", name=re.compile("^Fine-tune")).click()
    # Any step: a fast machine has passed the first one before it is looked for.
    expect(page.get_by_role("status").filter(has_text=re.compile(r"Step \d+ of 200"))).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Cancelled. Nothing was saved.")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Fine-tune"))).to_be_enabled()


def test_a_short_passage_cannot_be_protected(page: Page) -> None:
    page.goto(address(RUN))
    start = page.get_by_role("button", name=re.compile("^Fine-tune"))
    note = page.get_by_text(f"saves the result as the new run {RUN}-private")
    expect(note).to_have_count(0)
    page.get_by_role("textbox", name="Passages", exact=True).fill("Too short")
    expect(page.get_by_text("“Too short” is too short")).to_be_visible()
    expect(start).to_be_disabled()
    page.get_by_role("button", name="Example passages").click()
    expect(note).to_be_visible()
    expect(start).to_be_enabled()


def check_on_a_phone(page: Page, run: str) -> None:
    page.goto(address(run))
    page.get_by_role("textbox", name="Passages", exact=True).fill(PASSAGES)
    for scheme in THEMES:
        page.emulate_media(color_scheme=scheme)
        expect(page.get_by_role("region", name="Result")).to_be_visible()
        expect(passage(page, "after")).to_contain_text("little girl")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        table = page.get_by_role("region", name="Confidence before and after")
        assert table.evaluate("it => it.scrollWidth <= it.clientWidth"), "a column of figures is cut off"
        assert violations(page) == [], scheme
