"""Routing further: two texts and their difference, several layers at once, what is ranked and left out."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import violations
from tests.browser.rest import hover, settle
from tests.browser.test_routing import PROMPT, heat_map

pytestmark = pytest.mark.browser

OTHER = "The little boy said that she was hungry."


def difference(page: Page) -> Locator:
    """Differences between two texts."""
    return page.get_by_role("region", name="Difference between the two routings")


def test_comparing_two_prompts_shows_their_difference(page: Page) -> None:
    page.goto(f"/routing?run=demo-l3-k16&prompt={quote(PROMPT)}")
    expect(heat_map(page)).to_be_visible()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_role("textbox", name="Second prompt").fill(OTHER)
    expect(difference(page)).to_contain_text(re.compile(r"\d+ experts differ"))
    expect(page).to_have_url(re.compile(r"second=The\+little\+boy"))
    table = page.get_by_role("table", name="Differences, tokens by experts")
    heads = table.get_by_role("columnheader").all_inner_texts()
    assert heads[1].split() == ["girl", "boy"]  # nothing before the first token that differs can differ
    assert heads[-2:] == ["Score", "Change"]
    expect(difference(page)).to_contain_text("begin with the same 2 tokens")
    page.get_by_role("radio", name="Whole texts").click()
    gained = page.get_by_role("region", name="Stronger in the second text")
    expect(gained.get_by_role("row").nth(1)).to_contain_text(re.compile(r"\+\d"))
    expect(page.get_by_role("region", name="Stronger in the first text").get_by_role("row").nth(1)).to_contain_text("−")
    page.reload()
    expect(gained).to_be_visible()
    page.get_by_role("link", name="Tokens", exact=True).click()
    expect(heat_map(page)).to_be_visible()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.get_by_role("textbox", name="Second prompt")).to_have_value(OTHER)
    expect(difference(page)).to_be_visible()


def test_all_layers_are_shown_and_left_out_by_their_chips(page: Page, forgiven: list[str]) -> None:
    forgiven.append("404")  # the other layer's run has no index, so its experts have no page
    page.goto(f"/routing?run=demo-l3-k16&prompt={quote(PROMPT)}")
    expect(heat_map(page)).to_be_visible()
    page.get_by_role("link", name="Layers", exact=True).click()
    trace = page.get_by_role("table", name="Strongest expert, layers by tokens")
    expect(trace.get_by_role("rowheader")).to_have_text(["Layer 3", "Layer 1", "Next token"])
    layers = page.get_by_role("group", name="Layers")
    expect(layers.get_by_role("button", name="Layer 3")).to_be_disabled()
    layers.get_by_role("button", name="Layer 1").click()
    expect(page).to_have_url(re.compile("layers=none"))
    expect(trace.get_by_role("rowheader", name="Layer 1")).to_have_count(0)
    layers.get_by_role("button", name="Layer 1").click()
    expect(page).to_have_url(re.compile("layers=second"))
    finding = page.get_by_role("status").filter(has_text=re.compile("raises|lowers|changes no cell"))
    expect(finding).to_be_visible()  # of the cell that feeds most, before one is pressed
    expect(trace.locator("[aria-pressed=true][data-run=second]")).to_be_visible()
    trace.get_by_role("columnheader", name="girl").get_by_role("button").click()
    path = page.get_by_role("complementary", name="Path of the token")
    expect(path.get_by_role("heading", name="Path of ␣girl")).to_be_visible()
    expect(page).to_have_url(re.compile(r"[?&]lock=3\b"))
    settle(page)
    assert violations(page) == []
    plus = path.get_by_role("region", name="Layer 1").get_by_role("button").first
    plus.click()
    expect(plus).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("complementary", name="Tray")).to_contain_text(re.compile(r"second/\d+"))
    cell = trace.get_by_role("row", name="Layer 1").get_by_role("button").nth(2)
    hover(cell)
    expect(page.get_by_role("tooltip")).to_contain_text(re.compile(r"Rank on this token.*Writes.*[+−]0\.", re.DOTALL))
    cell.click()
    expect(finding).to_be_visible()
    # Each line starts on top of the cell that was pressed.
    box = cell.bounding_box()
    starts = page.locator(".trace-lines path").evaluate_all(
        "paths => paths.map(path => path.getPointAtLength(0).matrixTransform(path.getScreenCTM()).y)"
    )
    assert box is not None
    assert all(abs(start - box["y"]) < 2 for start in starts)
    expect(page).to_have_url(re.compile(r"of=second"))
    page.mouse.move(0, 0)  # the first Escape would close the tooltip
    expect(page.get_by_role("tooltip")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile(r"of=second"))
    path.get_by_role("region", name="Layer 1").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+\?run=second"))
    expect(page.get_by_role("alert")).to_contain_text("mxd index second")
