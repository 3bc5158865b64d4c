"""Circuits: a prompt becomes a graph whose every number is measured; targets, panel, tables, and the saved file."""

import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.rest import COLOURS, downloaded, holding, hover, violations

pytestmark = pytest.mark.browser

PROMPT = "Once upon a time there was a little"
# Other tests train further runs on the same server.
ADDRESS = "/circuits?run=demo-l3-k16&layers=second"
EFFECT = re.compile(r"^((supports|opposes) \d|0\.0)")


def graph(page: Page) -> Locator:
    return page.get_by_role("group", name="Circuit")


def experts(page: Page) -> Locator:
    return graph(page).get_by_role("button", name=re.compile(r"^Expert \d+"))


def panel(page: Page) -> Locator:
    """The side panel's part about the selected node."""
    return page.get_by_role("region", name="Selected node")


def checks(page: Page) -> Locator:
    return page.get_by_role("group").filter(has_text="How this is measured")


def test_every_expert_has_effects_and_examples_and_its_activation_is_explained(page: Page) -> None:
    page.goto(ADDRESS)
    page.get_by_role("textbox", name="Prompt").fill(PROMPT)
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"prompt=Once\+upon"))
    expect(checks(page)).to_contain_text("Kept alone", timeout=60_000)  # the model is loaded on first use
    finding = r"\(\d+(, (weak|no) label)?, layer \d, on .*\) (supports|opposes) .* most, by \d"
    told = re.search(r"\((\d+)", page.get_by_text(re.compile(finding)).inner_text())
    assert told is not None
    named = rf"\({told[1]}(, (weak|no) label)?, layer \d, on "  # as the finding names it
    expect(panel(page).get_by_role("heading", name=re.compile(named))).to_be_visible()
    claim = re.compile(r"^These 20 experts .* add to the logit of ␣.*: alone they .* without them .* remains\.")
    expect(page.get_by_role("status").filter(has_text=claim)).to_be_visible()
    expect(page.locator(".circuit-verdict")).to_contain_text(re.compile(r"sufficient, .*necessary\."))
    expect(checks(page).get_by_role("term").first).to_be_hidden()
    checks(page).get_by_text("How this is measured").click()
    expect(checks(page).get_by_role("term").first).to_be_visible()
    expect(checks(page)).to_have_text(
        re.compile(
            r"measured.*Kept alone[+−]\d.*Ablated together.*Completeness0\.\d.*as predicted.*r = \d.*"
            r"largest miss \d.*from 80\s%"
        )
    )
    effect = r"(supports|opposes|0)"
    button = re.compile(rf"^Expert \d+, layer \d, on .*predicted {effect}.*, measured {effect}")
    expect(graph(page).get_by_role("button", name=button)).to_have_count(20)
    assert violations(page) == []
    experts(page).nth(1).click()
    expect(page).to_have_url(re.compile(r"[?&]node=\d+\b"))
    effects = panel(page).get_by_role("definition").filter(has_text=EFFECT)
    expect(effects).to_have_count(2)  # predicted and measured
    heading = panel(page).get_by_role("heading", name=re.compile(r"\(\d+.*, layer \d, on "))
    number = (experts(page).nth(1).text_content() or "").split(",")[0].removeprefix("Expert ")
    selected = re.compile(rf"\({number}\b")
    expect(heading).to_have_text(selected)
    hover(experts(page).nth(4))
    expect(heading).not_to_have_text(selected)
    page.mouse.move(2, 2)
    expect(heading).to_have_text(selected)
    graph(page).get_by_role("button", name=re.compile("^Target")).focus()
    page.keyboard.press("ArrowDown")
    expect(graph(page).locator(":focus")).to_have_accessible_name(re.compile("^Expert"))
    graph(page).get_by_role("button", name=re.compile(r"^Expert \d+, layer 3")).first.click()
    expect(panel(page).get_by_role("heading", name="Top examples")).to_be_visible()
    expect(panel(page).get_by_role("link", name=re.compile("^Open expert"))).to_be_visible()
    panel(page).get_by_role("button", name="Explain its activation").click()
    expect(page).to_have_url(re.compile(r"[?&]target=expert:demo-l3-k16"))
    expect(graph(page).get_by_role("button", name=re.compile("^Target: activation of expert"))).to_be_visible()
    page.get_by_role("button", name="Back to the next token").click()
    expect(page).not_to_have_url(re.compile("target="))


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


def test_other_targets_and_back(page: Page) -> None:
    page.goto(f"{ADDRESS}&prompt=The+girl+was+happy.")
    last_word = graph(page).get_by_role("button", name=re.compile("^Target: logit of ␣happy"))
    expect(last_word).to_be_visible(timeout=60_000)  # a full stop says little
    expect(panel(page)).to_contain_text(re.compile(r"Fires on.*Writes here.*[+−]\d", re.DOTALL), timeout=60_000)
    page.get_by_role("button", name=re.compile("^Explain the next token")).click()
    expect(page).to_have_url(re.compile(r"[?&]target=\d+"))
    expect(last_word).to_have_count(0)
    page.goto(f"{ADDRESS}&prompt={PROMPT.replace(' ', '+')}")
    likely = page.get_by_role("group", name="Target").get_by_role("button")
    expect(page.get_by_text("Explain the likeliest token:")).to_be_visible()
    expect(likely.first).to_have_attribute("aria-pressed", "true")
    likely.nth(1).click()
    expect(page).to_have_url(re.compile(r"[?&]target=\d+"))
    expect(likely.nth(1)).to_have_attribute("aria-pressed", "true")
    page.get_by_role("combobox", name="Contrast with").select_option(index=1)
    expect(page).to_have_url(re.compile(r"[?&]target=\d+-\d+"))
    expect(graph(page).get_by_role("button", name=re.compile("^Target: logit of .* minus that of"))).to_be_visible()
    continuation = page.get_by_role("textbox", name="Continuation to explain")
    continuation.fill(" girl named")
    continuation.press("Enter")
    target = graph(page).get_by_role("button", name=re.compile("^Target: log-probability of the continuation"))
    expect(target).to_be_visible()
    page.go_back()
    expect(target).to_have_count(0)


def test_an_example_is_traced_and_saved_once_it_is_measured(page: Page) -> None:
    with holding(page, "**/api/circuits/check"):
        page.goto(ADDRESS)
        with page.expect_request("**/api/circuits/check", timeout=60_000):
            page.get_by_role("button", name="Trace an example").click()
        expect(experts(page)).to_have_count(20)
        expect(page.get_by_role("button", name="Share")).to_have_count(0)
    nodes = json.loads(downloaded(page, "Share", "Graph for circuit-tracer").path().read_bytes())["nodes"]
    assert len(nodes) == 21
    assert all("measured_effect" in node for node in nodes[1:])


def test_circuit_on_a_phone_is_accessible(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(f"{ADDRESS}&prompt={PROMPT.replace(' ', '+')}")
    expect(checks(page)).to_contain_text("Kept alone", timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    experts(page).first.tap()
    expect(panel(page)).to_contain_text(re.compile(r"Measured(supports|opposes|0)"))
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, COLOURS) == []
