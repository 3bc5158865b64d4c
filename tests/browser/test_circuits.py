"""Circuits: a prompt becomes a graph whose every number is measured; targets, panel, tables, and the saved file."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.axe import COLOURS, violations
from tests.browser.conftest import OpenPage
from tests.browser.rest import hover

pytestmark = pytest.mark.browser

PROMPT = "Once upon a time there was a little"
ADDRESS = "/circuits?run=demo-l3-k16"
EFFECT = re.compile(r"^((supports|opposes) \d|0\.0)")


def graph(page: Page) -> Locator:
    return page.get_by_role("group", name="Circuit")


def experts(page: Page) -> Locator:
    return graph(page).get_by_role("button", name=re.compile(r"^Expert \d+"))


def panel(page: Page) -> Locator:
    """The side panel's part about the selected node."""
    return page.get_by_role("region", name="Selected node")


def checks(page: Page) -> Locator:
    return page.get_by_role("region", name="Checks")


@pytest.fixture
def circuits(page: Page) -> Page:
    """The checked graph of a prompt that was typed."""
    page.goto(ADDRESS)
    page.get_by_role("textbox", name="Prompt").fill(PROMPT)
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"prompt=Once\+upon"))
    expect(checks(page)).to_contain_text("Single experts", timeout=60_000)  # the model is loaded on first use
    return page


def test_an_example_is_traced_on_request(page: Page) -> None:
    page.goto(ADDRESS)
    page.get_by_role("button", name="Trace an example").click()
    expect(experts(page)).to_have_count(20, timeout=60_000)


def test_a_trace_can_be_stopped_and_begun_again(page: Page, forgiven: list[str]) -> None:
    forgiven.append("ERR_FAILED")
    page.route("**/api/circuits", lambda route: None)  # never answered
    page.goto(f"{ADDRESS}&prompt=Once+upon+a+time+there+was")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/api/circuits")):
        page.get_by_role("button", name="Stop").click(timeout=60_000)
    expect(page.get_by_role("heading", name="Stopped")).to_be_visible()
    page.unroute("**/api/circuits")
    page.get_by_role("button", name="Trace again").click()
    expect(experts(page)).to_have_count(20, timeout=60_000)


def test_every_expert_has_a_predicted_and_a_measured_effect(circuits: Page) -> None:
    finding = r"\(\d+, layer \d, on .*\) (supports .* most: without it, the logit falls from|opposes it most)"
    expect(circuits.get_by_text(re.compile(finding))).to_be_visible()
    claim = (
        r"^(Each effect is real, but )?20 of \d+ active experts (alone )?explain .* random|^Do not rely on this circuit"
    )
    expect(circuits.get_by_role("status").filter(has_text=re.compile(claim))).to_be_visible()
    expect(checks(circuits)).to_have_text(
        re.compile(r"All \d+ experts[+−]\d.*20 random ones alone.*\d+\s% as predicted.*r = \d.*largest miss \d")
    )
    effect = r"(supports|opposes|0)"
    named = re.compile(rf"^Expert \d+, layer \d, on .*predicted {effect}.*, measured {effect}")
    expect(graph(circuits).get_by_role("button", name=named)).to_have_count(20)
    assert violations(circuits) == []


def test_the_panel_shows_effects_and_examples_and_explains_an_activation(circuits: Page) -> None:
    experts(circuits).nth(1).click()
    expect(circuits).to_have_url(re.compile(r"[?&]node=2\b"))
    effects = panel(circuits).get_by_role("definition").filter(has_text=EFFECT)
    expect(effects).to_have_count(2)  # predicted and measured
    heading = panel(circuits).get_by_role("heading", name=re.compile(r"^Expert \d+, layer \d, on "))
    selected = re.compile(" ".join((experts(circuits).nth(1).text_content() or "").split(",")[0].split()) + ",")
    expect(heading).to_have_text(selected)
    hover(experts(circuits).nth(4))
    expect(heading).not_to_have_text(selected)
    circuits.mouse.move(2, 2)
    expect(heading).to_have_text(selected)
    target = graph(circuits).get_by_role("button", name=re.compile("^Target"))
    target.focus()
    circuits.keyboard.press("ArrowDown")
    expect(graph(circuits).locator(":focus")).to_have_accessible_name(re.compile("^Expert"))
    of_layer_3 = graph(circuits).get_by_role("button", name=re.compile(r"^Expert \d+, layer 3"))
    of_layer_3.first.click()
    expect(panel(circuits).get_by_role("heading", name="Top examples")).to_be_visible()
    expect(panel(circuits).get_by_role("link", name=re.compile("^Open expert"))).to_be_visible()
    panel(circuits).get_by_role("button", name="Explain its activation").click()
    expect(circuits).to_have_url(re.compile(r"[?&]target=expert:demo-l3-k16"))
    expect(graph(circuits).get_by_role("button", name=re.compile("^Target: activation of expert"))).to_be_visible()
    circuits.get_by_role("button", name="Back to the next token").click()
    expect(circuits).not_to_have_url(re.compile("target="))


def test_a_text_that_ends_with_a_full_stop_is_explained_by_its_last_word(page: Page) -> None:
    page.goto(f"{ADDRESS}&prompt=The+girl+was+happy.")
    target = graph(page).get_by_role("button", name=re.compile("^Target: logit of ' happy'"))
    expect(target).to_be_visible(timeout=60_000)
    expect(panel(page)).to_contain_text(
        re.compile(r"Fires on.*Writes here.*([+−]\d|no whole word)", re.DOTALL), timeout=60_000
    )
    page.get_by_role("button", name=re.compile("^Explain the next token")).click()
    expect(page).to_have_url(re.compile(r"[?&]target=\d+"))
    expect(target).to_have_count(0)


def test_other_targets_and_back(circuits: Page) -> None:
    likely = circuits.get_by_role("group", name="Target").get_by_role("button")
    expect(circuits.get_by_text("Explain the likeliest, or another")).to_be_visible()
    expect(likely.first).to_have_attribute("aria-pressed", "true")
    likely.nth(1).click()
    expect(circuits).to_have_url(re.compile(r"[?&]target=\d+"))
    expect(likely.nth(1)).to_have_attribute("aria-pressed", "true")
    circuits.get_by_role("combobox", name="Contrast with").select_option(index=1)
    expect(circuits).to_have_url(re.compile(r"[?&]target=\d+-\d+"))
    expect(graph(circuits).get_by_role("button", name=re.compile("^Target: logit of .* minus that of"))).to_be_visible()
    continuation = circuits.get_by_role("textbox", name="Continuation to explain")
    continuation.fill(" girl named")
    continuation.press("Enter")
    target = graph(circuits).get_by_role("button", name=re.compile("^Target: log-probability of the continuation"))
    expect(target).to_be_visible()
    circuits.go_back()
    expect(target).to_have_count(0)


def test_a_graph_is_saved_once_it_is_measured(page: Page, tmp_path: Path) -> None:
    held: list[Route] = []
    page.route("**/api/circuits/check", lambda route: held.append(route))
    with page.expect_request("**/api/circuits/check", timeout=60_000):
        page.goto(f"{ADDRESS}&prompt=Once+upon")
    save = page.get_by_role("button", name="Save graph")
    expect(save).to_be_disabled()
    for route in held:
        route.continue_()
    expect(save).to_be_enabled()
    with page.expect_download() as download:
        save.click()
    path = tmp_path / "circuit.json"
    download.value.save_as(path)
    nodes = json.loads(path.read_text("utf-8"))["nodes"]
    assert len(nodes) == 21
    assert all("measured_effect" in node for node in nodes[1:])


def test_circuit_on_a_phone_is_accessible(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(f"{ADDRESS}&prompt={PROMPT.replace(' ', '+')}")
    expect(checks(page)).to_contain_text("Single experts", timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    experts(page).first.tap()
    expect(panel(page)).to_contain_text(re.compile(r"Measured(supports|opposes|0)"))
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, COLOURS) == []
