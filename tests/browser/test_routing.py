"""Routing: a text becomes a map; hover previews, click locks, Escape releases, the address holds it all."""

import re

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.browser.rest import expect_accessible, hover, rest, settle, steady
from tests.helpers.processes import wait_for

pytestmark = pytest.mark.browser

PROMPT = "The little girl said that she was hungry."
TOKENS = ["The", "little", "girl", "said", "that", "she", "was"]


def heat_map(page: Page) -> Locator:
    return page.get_by_role("table", name="Activations, tokens by experts")


def token(page: Page, text: str) -> Locator:
    return heat_map(page).get_by_role("columnheader", name=text, exact=True).get_by_role("button")


def panel(page: Page) -> Locator:
    return page.get_by_role("complementary", name="Token details")


def typed(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Prompt").fill(text)
    rest(heat_map(page))


@pytest.fixture
def routing(page: Page) -> Page:
    """The map of a prompt that was typed."""
    page.goto("/routing?run=demo-l3-k16")
    expect(page.get_by_role("heading", name="Type a text to see its routing")).to_be_visible()
    expect(page.get_by_role("button", name="Share")).to_have_count(0)
    typed(page, PROMPT)
    return page


def test_a_typed_prompt_draws_the_map_which_pointing_previews_and_keys_walk(routing: Page) -> None:
    expect(routing).to_have_url(re.compile(r"[?&]prompt=The\+little\+girl\+said"))
    heads = heat_map(routing).get_by_role("columnheader").all_inner_texts()
    assert [head.strip() for head in heads[1:8]] == TOKENS
    rows = heat_map(routing).get_by_role("row").filter(has=routing.get_by_role("rowheader"))
    weak = [row.locator("th .weak").count() for row in rows.all()[1:]]
    assert weak == sorted(weak) and {0, 1} == set(weak)
    routing.get_by_role("checkbox", name="Weak labels last").click()
    expect(routing).to_have_url(re.compile("mixed=1"))
    sums = [float(row.get_by_role("cell").last.inner_text()) for row in rows.all()[1:]]
    assert sums == sorted(sums, reverse=True)
    assert sums[0] > 0
    expect(panel(routing).get_by_role("heading", name="Next token")).to_be_visible()
    finding = re.compile(r"^On .*\(\d+\) fires at \d.*, with the largest score.*least exact after .*: KL \d")
    expect(routing.get_by_text(finding)).to_be_visible()
    hover(token(routing, "girl"))
    tip = routing.get_by_role("tooltip")
    expect(tip).to_contain_text("KL from original")
    expect(panel(routing).get_by_role("heading", name="Token: ␣girl")).to_be_visible()
    token(routing, "girl").click()
    expect(panel(routing).get_by_role("heading", name="Locked: ␣girl")).to_be_visible()
    lock = panel(routing).get_by_role("button", name="Lock")
    expect(lock).to_have_attribute("aria-pressed", "true")
    lock.click()
    expect(lock).to_have_attribute("aria-pressed", "false")
    lock.click()
    expect(routing).to_have_url(re.compile(r"[?&]lock=3\b"))
    expect(lock).to_have_attribute("aria-pressed", "true")  # drawn with the rows, after the address has changed
    assert all(row.get_by_role("cell").nth(2).inner_text() for row in rows.all()[1:17])
    scores = [float(row.get_by_role("cell").last.inner_text()) for row in rows.all()[1:17]]
    assert scores == sorted(scores, reverse=True)
    hover(token(routing, "said"))
    expect(panel(routing).get_by_role("heading", name="Locked: ␣girl")).to_be_visible()
    routing.mouse.move(5, 5)
    routing.keyboard.press("Escape")
    expect(panel(routing).get_by_role("heading", name="Token: ")).to_be_visible()
    expect(routing).not_to_have_url(re.compile("lock="))
    token(routing, "The").focus()
    routing.keyboard.press("ArrowRight")
    expect(token(routing, "little")).to_be_focused()
    expect(tip).to_contain_text("Active experts")
    routing.keyboard.press("ArrowDown")
    expect(tip).to_contain_text("Rank on this token")
    routing.keyboard.press("Enter")
    expect(panel(routing).get_by_role("heading", name="Locked: ␣little")).to_be_visible()


def test_a_long_prompt_is_drawn_in_part_and_one_too_long_is_carried_nowhere(page: Page, forgiven: list[str]) -> None:
    forgiven.append("413")
    page.goto("/routing?run=demo-l3-k16")
    steer = page.get_by_role("link", name="Steer", exact=True).first
    page.get_by_role("textbox", name="Prompt").fill("girl " * 600)
    expect(page.get_by_role("alert")).to_contain_text("The text is too long: 60")
    expect(steer).not_to_have_attribute("href", re.compile("prompt="))
    typed(page, " ".join([PROMPT] * 30))
    expect(steer).to_have_attribute("href", re.compile("prompt=The"))
    expect(page.get_by_text(re.compile(r"^\d\d\d tokens"))).to_be_visible()
    heads = heat_map(page).get_by_role("columnheader")
    assert heads.count() < 100
    hover(heat_map(page))
    page.mouse.wheel(4000, 0)
    page.mouse.move(5, 5)
    heads.nth(-3).get_by_role("button").click()
    expect(panel(page).get_by_text(re.compile(r"^position \d\d+"))).to_be_visible()


def test_an_outdated_request_is_cancelled(routing: Page) -> None:
    cancelled: list[str] = []

    def asked(request: Request) -> str:
        return str((request.post_data_json or {})["text"])

    routing.on("requestfailed", lambda request: cancelled.append(asked(request)))
    # The server takes as long as it likes with the first of two texts.
    first = "The old man said"
    routing.route("**/routing", lambda route: None if asked(route.request) == first else route.continue_())
    with routing.expect_request(lambda request: request.url.endswith("/routing") and asked(request) == first):
        routing.get_by_role("textbox", name="Prompt").fill(first)
    typed(routing, "The old woman said")
    expect(token(routing, "woman")).to_be_visible()
    assert set(cancelled) == {first}  # also what else was asked about that text


def test_clicking_a_cell_locks_its_expert_across_reloads(routing: Page) -> None:
    routing.get_by_role("radio", name="Max").click()
    expect(heat_map(routing).get_by_role("columnheader", name="Max")).to_be_visible()
    first = heat_map(routing).get_by_role("row").nth(2)
    plus = first.get_by_role("rowheader").get_by_role("button").get_attribute("aria-label") or ""
    expert = plus.split()[1]
    cell = first.get_by_role("cell").get_by_role("button").first
    hover(cell)
    expect(routing.get_by_role("tooltip")).to_contain_text(re.compile(rf"^{expert}.*Rank on this token", re.DOTALL))
    cell.click()
    expect(routing).to_have_url(re.compile(rf"[?&]lock=\d+\.{expert}\b"))
    expect(routing).to_have_url(re.compile("rank=largest"))
    routing.mouse.move(5, 5)
    expect(routing.get_by_role("tooltip")).to_have_count(0)
    # Promoted tokens are requested when a token is locked, and arrive a moment later.
    promotes = panel(routing).get_by_role("link", name="promotes")
    expect(promotes).to_be_visible()

    def shown() -> tuple[str, str]:
        return heat_map(routing).aria_snapshot(), panel(routing).aria_snapshot()

    settle(routing)
    before = steady(routing, shown)
    routing.reload()
    expect(panel(routing).get_by_role("heading", name="Locked: ")).to_be_visible()
    expect(promotes).to_be_visible()
    wait_for(lambda: shown() == before)


def test_smaller_k_is_set_by_key_and_an_example_becomes_the_prompt(routing: Page) -> None:
    slider = routing.get_by_role("slider", name="Active experts per token")
    expect(slider).to_have_value("16")
    slider.focus()
    routing.keyboard.press("Home")
    routing.keyboard.press("ArrowRight")
    expect(slider).to_have_value("2")
    expect(routing).to_have_url(re.compile(r"[?&]k=2\b"))
    token(routing, "girl").click()
    expect(panel(routing).get_by_role("listitem")).to_have_count(2)
    routing.keyboard.press("Escape")
    slider.focus()
    routing.keyboard.press("End")
    expect(routing).not_to_have_url(re.compile(r"[?&]k="))
    routing.get_by_role("button", name="From an example").click()
    dialog = routing.get_by_role("dialog", name="Prompt from an example")
    expect_accessible(dialog.get_by_role("listitem").first)
    dialog.get_by_role("textbox", name="Search examples").fill("restaurant")
    dialog.get_by_role("listitem").filter(has_text="restaurant").first.get_by_role("button").click()
    expect(dialog).to_have_count(0)
    expect(routing.get_by_role("textbox", name="Prompt")).not_to_have_value(PROMPT)
    expect(heat_map(routing)).to_be_visible()
    routing.go_back()
    expect(routing.get_by_role("textbox", name="Prompt")).to_have_value(PROMPT)


def test_another_method_of_the_same_layer_can_be_chosen(page: Page) -> None:
    def answer(route: Route) -> None:
        runs = route.fetch().json()
        (own,) = (run for run in runs["runs"] if run["name"] == "demo-l3-k16")
        runs["runs"].append({**own, "name": "sibling", "method": "transcoder"})
        route.fulfill(json=runs)

    page.route("**/api/runs", answer)
    page.goto("/routing?run=demo-l3-k16&prompt=One+day")
    settle(page)
    chips = page.get_by_role("group", name="Layers").get_by_role("link").all_inner_texts()
    assert {"3 MxD", "3 Transcoder"} <= {" ".join(chip.split()[1:]) for chip in chips}
