"""Circuits: a prompt becomes a graph; experts are chosen, switched off, and taken to Steering."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import violations
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

PROMPT = "Once upon a time there was a little"
ADDRESS = "/circuits?run=demo-l3-k16"


def graph(page: Page) -> Locator:
    """The graph, whose nodes are buttons."""
    return page.get_by_role("group", name="Circuit")


def experts(page: Page) -> Locator:
    """Its experts."""
    return graph(page).get_by_role("button", name=re.compile(r"^Expert \d+"))


@pytest.fixture
def circuits(page: Page) -> Page:
    """The graph of a prompt that was typed."""
    page.goto(ADDRESS)
    expect(page.get_by_role("heading", name="Type a prompt to trace")).to_be_visible()
    page.get_by_role("textbox", name="Prompt").fill(PROMPT)
    page.keyboard.press("Control+Enter")
    expect(graph(page)).to_be_visible()
    return page


def test_from_a_prompt_to_steering(circuits: Page) -> None:
    expect(circuits).to_have_url(re.compile(r"prompt=Once\+upon"))
    expect(graph(circuits).get_by_role("button", name=re.compile("^Next token"))).to_have_count(1)
    assert experts(circuits).count() > 1
    assert violations(circuits) == []
    first = experts(circuits).first
    first.hover()
    expect(circuits.get_by_role("tooltip")).to_contain_text("Total effect on the logit")
    first.click()
    expect(first).to_have_attribute("aria-pressed", "true")
    expect(circuits).to_have_url(re.compile(r"chosen=\d+\.3\.\d+"))
    circuits.mouse.move(5, 5)
    off = circuits.get_by_role("region", name="Ablation")
    expect(off.get_by_role("rowheader", name="Measured")).to_be_visible()
    for row in ("Predicted by the graph", "Measured"):
        expect(off.get_by_role("row", name=row).get_by_role("cell")).to_have_text(re.compile(r"^([+−]\d|0)\S*$"))
    nodes = circuits.get_by_role("region", name="Nodes of the circuit")
    expect(nodes.get_by_role("checkbox", checked=True)).to_have_count(1)
    circuits.get_by_role("button", name="Verify graph").click()
    expect(circuits.get_by_role("status").filter(has_text="the sign agrees")).to_be_visible()
    expect(nodes.get_by_role("columnheader", name="Measured")).to_be_visible()
    off.get_by_role("link", name="Open in Steering").click()
    expect(circuits).to_have_url(
        re.compile(r"/steering\?run=demo-l3-k16.*prompt=Once.*edits=\d+:ablate.*scope=chosen.*at=\d+")
    )


def test_keys_another_target_and_the_way_back(circuits: Page) -> None:
    likely = circuits.get_by_role("group", name="Likely next tokens").get_by_role("button")
    expect(likely.first).to_have_attribute("aria-pressed", "true")
    likely.nth(1).click()
    expect(circuits).to_have_url(re.compile(r"[?&]target=\d+"))
    expect(likely.nth(1)).to_have_attribute("aria-pressed", "true")
    target = graph(circuits).get_by_role("button", name=re.compile("^Next token"))
    target.focus()
    circuits.keyboard.press("ArrowDown")
    expect(target).not_to_be_focused()
    expect(circuits.get_by_role("tooltip")).to_contain_text("Influence")
    circuits.get_by_role("radio", name="Edges").click()
    edges = circuits.get_by_role("region", name="Edges of the circuit")
    expect(edges.get_by_role("row").nth(1)).to_contain_text(re.compile(r"[+−]\d"))
    circuits.reload()
    expect(edges).to_be_visible()
    circuits.go_back()
    expect(likely.first).to_have_attribute("aria-pressed", "true")


def test_a_node_in_the_table_leads_to_its_expert(circuits: Page) -> None:
    nodes = circuits.get_by_role("region", name="Nodes of the circuit")
    link = nodes.get_by_role("link").first
    wanted = (link.inner_text().split() or [""])[0]
    link.click()
    expect(circuits).to_have_url(re.compile(rf"/experts/{wanted}\?run=demo-l3-k16"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(open_page: OpenPage, scheme: str) -> None:
    page = open_page(color_scheme=scheme, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(f"{ADDRESS}&prompt={PROMPT.replace(' ', '+')}")
    expect(graph(page)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    experts(page).first.tap()
    expect(page.get_by_role("region", name="Ablation").get_by_role("rowheader", name="Measured")).to_be_visible()
    assert violations(page) == []
