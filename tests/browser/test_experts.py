"""Experts: the table, and search by effect and by passage."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.rest import press, rest, settle, steady
from tests.browser.sample import RUN
from tests.helpers.processes import wait_for

pytestmark = pytest.mark.browser

ALL = "4,096 of 4,096"
FIRST_PAGE = 60


def count(page: Page) -> Locator:
    return page.get_by_role("region", name="Search and filters").get_by_role("status")


def body(page: Page) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("cell"))


def column(page: Page, place: int) -> list[float]:
    return [float(row.get_by_role("cell").nth(place).inner_text()) for row in body(page).all()[:8]]


@pytest.fixture
def experts(page: Page) -> Page:
    page.goto("/experts")
    expect(count(page)).to_have_text(ALL)
    rest(body(page).nth(8))
    return page


def test_search_finds_labels_and_words_in_examples(experts: Page) -> None:
    box = experts.get_by_role("searchbox", name="Filter by label, token or example")
    press(experts, "/")
    expect(box).to_be_focused()
    box.press_sequentially("closing html")
    expect(experts.get_by_role("link", name="Closing HTML tag")).to_be_visible()
    expect(experts).to_have_url(re.compile(r"[?&]search=closing\+html"))
    expect(count(experts)).not_to_have_text(ALL)
    experts.reload()
    expect(box).to_have_value("closing html")
    box.fill("nobody has ever written this")
    experts.get_by_role("button", name="Clear search").click()
    expect(count(experts)).to_have_text(ALL)
    expect(box).to_have_value("")


def test_a_column_header_sorts_in_both_directions(experts: Page) -> None:
    head = experts.get_by_role("columnheader", name="Density")
    first = body(experts).first.get_by_role("cell")
    for order, density in (
        ("descending", re.compile(r"^\d{2,3}\.\d+$")),
        ("ascending", re.compile(r"^0\.000[1-9]$|^0\.00[1-9]")),
    ):
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", order)
        expect(experts.get_by_role("columnheader", name="Max")).to_have_attribute("aria-sort", "none")
        expect(first.nth(3)).to_have_text(density)
        shown = column(experts, 3)
        assert shown == sorted(shown, reverse=order == "descending")
    experts.go_back()
    expect(head).to_have_attribute("aria-sort", "descending")


def test_a_filter_chip_can_be_edited_and_removed(experts: Page) -> None:
    press(experts, "f")
    bound = experts.get_by_role("textbox", name="Density at least, %")
    expect(bound).to_be_focused()
    bound.fill("much")
    expect(experts.get_by_role("button", name="Apply")).to_be_disabled()
    bound.fill("1")
    bound.press("Enter")
    chip = experts.get_by_role("button", name="Edit filter density ≥ 1 %")
    expect(chip).to_be_visible()
    expect(experts).to_have_url(re.compile(r"[?&]min_density=0\.01\b"))
    expect(count(experts)).to_have_text(re.compile(r"^\d{1,3} of 4,096$"))
    settle(experts)
    assert min(column(experts, 3)) >= 1

    chip.click()
    bound = experts.get_by_role("dialog", name="Edit filter").get_by_role("textbox")
    expect(bound).to_have_value("1")
    bound.fill("500")
    bound.press("Enter")
    expect(experts.get_by_role("heading", name="No matching experts")).to_be_visible()
    experts.get_by_role("button", name="Remove filter").click()
    expect(count(experts)).to_have_text(ALL)


def test_experts_are_filtered_by_a_token_that_they_fire_on(experts: Page) -> None:
    press(experts, "f")
    experts.get_by_role("combobox", name="Filter by").select_option("Fires on token")
    token = experts.get_by_role("textbox", name="Fires on token")
    token.fill("return")
    token.press("Enter")
    expect(experts).to_have_url(re.compile(r"[?&]token=return\b"))
    expect(count(experts)).to_have_text(re.compile(r"^\d{1,3} of 4,096$"))
    # The expert's page shows the most frequent tokens only, as the table does.
    named = body(experts).filter(has=experts.get_by_role("cell", name=re.compile(r"return\b")))
    named.first.get_by_role("link").first.click()
    fires = experts.get_by_role("link", name=re.compile(r"^Experts that fire on\s+return$", re.I)).first
    fires.click()
    expect(experts).to_have_url(re.compile(r"[?&]token=[^&]*return\b"))
    experts.get_by_role("button", name="Remove filter fires on").click()
    expect(count(experts)).to_have_text(ALL)


def test_scrolling_loads_the_next_page_and_renders_few_rows(experts: Page) -> None:
    # The next page is fetched ahead, so it may come before the wheel is turned.
    with experts.expect_response(lambda response: "order=asc" in response.url and "cursor=" in response.url):
        # The second of two fast clicks comes before the first is drawn.
        experts.get_by_role("columnheader", name="Id").get_by_role("button").evaluate("it => (it.click(), it.click())")
        expect(body(experts).first.get_by_role("cell").nth(1)).to_have_text("0")
        experts.mouse.move(700, 700)
        experts.mouse.wheel(0, 31 * FIRST_PAGE)
    expect(experts.get_by_role("cell", name=str(FIRST_PAGE + 5), exact=True)).to_be_visible()
    assert body(experts).count() < 120


def expect_place(page: Page, opened: str | None, place: float) -> None:
    """The row that was opened is on screen, where it was."""
    expect(page.get_by_role("table").locator(f"a[href='{opened}']")).to_be_in_viewport()
    wait_for(lambda: abs(page.evaluate("scrollY") - place) <= 2)


def test_going_back_restores_the_scroll_position(page: Page) -> None:
    page.goto("/experts?run=demo-l3-k16&sort=density&min_density=0.001")
    listed = page.url
    rest(body(page).nth(8))
    page.mouse.move(700, 700)
    row = page.get_by_role("table").locator("tr[aria-hidden=true]").first
    # More than two pages of rows down, so that they have to be fetched again to get there.
    for _ in range(12):
        page.mouse.wheel(0, 500)
        page.wait_for_timeout(150)
    expect(row).to_be_attached()
    settle(page)
    place = steady(page, lambda: page.evaluate("scrollY"))
    assert place > 3 * 31 * FIRST_PAGE / 2
    link = page.evaluate_handle("document.elementFromPoint(700, 450).closest('tr').querySelector('a')").as_element()
    assert link is not None
    opened = link.get_attribute("href")
    link.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+\?"))
    # The cache is cleared: the position must not depend on it.
    page.reload()
    page.go_back()
    expect(page).to_have_url(listed)
    expect_place(page, opened, place)
    page.go_forward()
    page.reload()
    page.get_by_role("navigation", name="Breadcrumbs").get_by_role("link", name="Experts").click()
    expect(page).to_have_url(listed)
    expect_place(page, opened, place)


def test_a_lasso_selection_filters_the_table(experts: Page) -> None:
    experts.get_by_text("Map of all experts").click()
    plane = experts.locator(".overview .js-plotly-plot .nsewdrag").first
    expect(plane).to_be_visible()
    area = plane.bounding_box()
    assert area is not None
    corners = ((0.3, 0.2), (0.7, 0.2), (0.7, 0.8), (0.3, 0.8), (0.3, 0.2))
    places = [(area["x"] + across * area["width"], area["y"] + down * area["height"]) for across, down in corners]
    experts.mouse.move(*places[0])
    experts.mouse.down()
    for place in places[1:]:
        experts.mouse.move(*place, steps=6)
    experts.mouse.up()
    expect(experts.get_by_role("heading", name="Selection")).to_be_visible()
    held = experts.locator(".selection .chip").inner_text().split()[0]
    assert 300 < int(held.replace(",", "")) < 4096
    expect(experts.get_by_text("Too many for the link (at most 300)")).to_be_visible()
    expect(experts.get_by_role("button", name="Save as list")).to_be_visible()
    expect(experts).not_to_have_url(re.compile("lasso="))
    experts.get_by_role("button", name="Show in table").click()
    expect(count(experts)).to_have_text(f"{held} of 4,096")
    expect(experts).to_have_url(re.compile(r"[?&]among=\d"))
    experts.get_by_role("button", name="Clear selection").click()
    expect(experts.get_by_role("heading", name="Selection")).to_have_count(0)


SECONDS = 60_000


def test_from_a_wish_to_a_steered_text(page: Page) -> None:
    page.goto(f"/search?run={RUN}")
    page.get_by_role("radio", name="I want it to say …").click()
    search = page.get_by_role("region", name="Search by effect")
    find = search.get_by_role("button", name="Find experts")
    find.click()
    expect(search.get_by_role("status")).to_have_text(re.compile("^Type the beginning of a text .* and what should"))

    page.get_by_role("textbox", name="Prompt").click()
    page.keyboard.type("The little girl said")
    search.get_by_role("textbox", name="I want it to say").click()
    page.keyboard.type("the | that")
    find.click()
    expect(search.get_by_role("status")).to_contain_text(
        "“the” or “that” follows with a probability of", timeout=SECONDS
    )
    rows = search.locator("tbody tr")
    expect(rows.first).to_be_visible(timeout=SECONDS)
    assert rows.count() > 3
    rows.first.get_by_role("button", name=re.compile("in the tray")).click()
    page.get_by_role("link", name="Open in Steer").click()
    expect(rows.first).to_be_visible(timeout=SECONDS)
    steered = page.get_by_role("region", name="Steered", exact=True)
    expect(steered).to_contain_text(re.compile(r"done, \d+ tokens"), timeout=SECONDS)
    expect(rows.first.locator('[data-name^="price"]')).to_have_text(re.compile(r"[\d.]+ .* × random"), timeout=SECONDS)
    effects = rows.locator('[data-name^="effect"]').all_inner_texts()
    measured = [float(text.split()[0].replace("−", "-")) for text in effects]
    assert measured == sorted(measured, reverse=True)
    address = page.url
    page.goto("/glossary")
    page.goto(address)
    expect(search.get_by_role("textbox", name="I want it to say")).to_have_value("the | that")
    expect(rows).to_have_count(len(measured), timeout=SECONDS)


def test_an_empty_search_offers_words_that_find_experts(page: Page) -> None:
    page.goto(f"/search?run={RUN}")
    main = page.get_by_role("main")
    expect(main.get_by_role("heading", name="Most steerable experts, nats")).to_be_visible()
    expect(main.get_by_role("button", name=re.compile("^Expert .* in the tray$")).first).to_be_visible()
    main.get_by_role("button", name="numbers", exact=True).click()
    expect(page).to_have_url(re.compile("text=numbers"))
    expect(main.get_by_role("region", name="Matching experts")).to_be_visible(timeout=SECONDS)


PASSAGE = "He said: me gusta el libro. Then he went home."


def counted(page: Page) -> int:
    words = page.locator(".search-bar .count").inner_text()
    found = re.search(r"([\d,]+) experts? fires? on", words)
    assert found is not None, words
    return int(found[1].replace(",", ""))


def test_experts_of_a_passage_and_of_one_token_are_found(page: Page) -> None:
    page.goto("/search")
    page.get_by_role("radio", name="A passage").click()
    page.get_by_role("textbox", name="Passage").fill(PASSAGE)
    page.get_by_role("button", name="Run through the model").click()
    expect(page.locator(".search-bar .count")).to_contain_text("fire on the passage")
    expect(page).to_have_url(re.compile(r"text=He\+said"))
    whole = counted(page)
    tokens = page.get_by_role("group", name="Tokens of the passage").get_by_role("button")
    tokens.filter(has_text="gust").click()
    expect(page.locator(".search-bar .count")).to_have_text(re.compile(r"^([1-9]|1[0-6]) experts? fires? on the token"))
    assert 0 < counted(page) <= 16 < whole
    page.get_by_role("button", name="Density ≤ 1 % only").click()
    expect(page).to_have_url(re.compile(r"max_density="))
    page.reload()
    expect(page.locator(".search-bar .count")).to_contain_text("on the token")
    first = page.locator("table tbody tr").first
    expect(first).to_be_visible()
    first.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+"))
