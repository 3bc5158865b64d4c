"""Experts: the table, search by effect and by passage; lists and tags: made, filled, put in order, exported."""

import csv
import json
import re

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import ANSWERING, BRACKET, CLOSING_TAG, DECIMAL_POINT, RUN, UNLABELLED, Site
from tests.browser.rest import downloaded, expect_accessible, press, rest, settle, steady
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


def test_search_finds_labels_and_a_column_header_sorts_in_both_directions(experts: Page) -> None:
    box = experts.get_by_role("searchbox", name="Filter by label, token or example")
    box.press_sequentially("closing html")
    expect(experts.get_by_role("link", name="Closing HTML tag")).to_be_visible()
    expect(experts).to_have_url(re.compile(r"[?&]search=closing\+html"))
    experts.reload()
    expect(box).to_have_value("closing html")
    box.fill("nobody has ever written this")
    experts.get_by_role("button", name="Clear search").click()
    expect(count(experts)).to_have_text(ALL)
    expect(box).to_have_value("")
    head = experts.get_by_role("columnheader", name="Density")
    first = body(experts).first.get_by_role("cell")
    for order, density in (("descending", r"^\d{2,3}\.\d+$"), ("ascending", r"^0\.000[1-9]$|^0\.00[1-9]")):
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", order)
        expect(experts.get_by_role("columnheader", name="Max")).to_have_attribute("aria-sort", "none")
        expect(first.nth(3)).to_have_text(re.compile(density))
        shown = column(experts, 3)
        assert shown == sorted(shown, reverse=order == "descending")
    experts.go_back()
    expect(head).to_have_attribute("aria-sort", "descending")


def test_filters_are_added_edited_and_removed(experts: Page) -> None:
    press(experts, "f")
    expect_accessible(experts.get_by_role("dialog", name="Add filter"))
    bound = experts.get_by_role("textbox", name="Density at least, %")
    expect(bound).to_be_focused()
    bound.fill("much")
    expect(experts.get_by_role("button", name="Apply")).to_be_disabled()
    bound.fill("1")
    bound.press("Enter")
    expect(experts).to_have_url(re.compile(r"[?&]min_density=0\.01\b"))
    expect(count(experts)).to_have_text(re.compile(r"^\d{1,3} of 4,096$"))
    settle(experts)
    assert min(column(experts, 3)) >= 1
    experts.get_by_role("button", name="Edit filter density ≥ 1 %").click()
    bound = experts.get_by_role("dialog", name="Edit filter").get_by_role("textbox")
    expect(bound).to_have_value("1")
    bound.fill("500")
    bound.press("Enter")
    expect(experts.get_by_role("heading", name="No matching experts")).to_be_visible()
    experts.get_by_role("button", name="Remove filter").click()
    expect(count(experts)).to_have_text(ALL)
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
    experts.get_by_role("button", name=re.compile("^Details")).click()
    experts.get_by_role("link", name=re.compile(r"^Experts that fire on\s+return$", re.I)).first.click()
    expect(experts).to_have_url(re.compile(r"[?&]token=[^&]*return\b"))
    experts.get_by_role("button", name="Remove filter fires on").click()
    expect(count(experts)).to_have_text(ALL)


def test_scrolling_loads_pages_renders_few_rows_and_going_back_restores_the_position(page: Page) -> None:
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
    assert body(page).count() < 120
    place = steady(page, lambda: page.evaluate("scrollY"))
    assert place > 3 * 31 * FIRST_PAGE / 2
    link = page.evaluate_handle("document.elementFromPoint(700, 450).closest('tr').querySelector('a')").as_element()
    assert link is not None
    opened = link.get_attribute("href")
    link.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+\?"))
    back = page.get_by_role("navigation", name="Breadcrumbs").get_by_role("link", name="Experts")
    for leave in (page.go_back, back.click):
        # The cache is cleared: the position must not depend on it.
        page.reload()
        leave()
        expect(page).to_have_url(listed)
        expect(page.get_by_role("table").locator(f"a[href='{opened}']")).to_be_in_viewport()
        wait_for(lambda: abs(page.evaluate("scrollY") - place) <= 2)
        page.go_forward()


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
    find, status = search.get_by_role("button", name="Find experts"), search.get_by_role("status")
    find.click()
    expect(status).to_have_text(re.compile("^Type the beginning of a text .* and what should"))
    page.get_by_role("textbox", name="Prompt").fill("The little girl said")
    search.get_by_role("textbox", name="I want it to say").fill("the | that")
    find.click()
    expect(status).to_contain_text("“the” or “that” follows with a probability of", timeout=SECONDS)
    rows = search.locator("tbody tr")
    expect(rows.first).to_be_visible(timeout=SECONDS)
    assert rows.count() > 3
    rows.first.get_by_role("button", name=re.compile("in the tray")).click()
    page.get_by_role("link", name="Open in Steer").click()
    expect(rows.first).to_be_visible(timeout=SECONDS)
    steered = page.get_by_role("region", name="Steered", exact=True)
    expect(steered).to_contain_text(re.compile(r"done, \d+ tokens"), timeout=SECONDS)
    expect(rows.first.locator("td.c-price")).to_have_text(re.compile(r"^[\d.]+$"), timeout=SECONDS)
    expect(rows.first.locator("td.c-rises")).to_have_text(re.compile(r"^\d of [1-3]$"))
    effects = rows.locator("td.c-held_out").all_inner_texts()
    measured = [float(text.split()[0].replace("−", "-")) for text in effects]
    assert measured == sorted(measured, reverse=True)
    page.reload()
    expect(search.get_by_role("textbox", name="I want it to say")).to_have_value("the | that")
    expect(rows).to_have_count(len(measured), timeout=SECONDS)


def test_words_a_passage_and_one_of_its_tokens_find_experts(page: Page) -> None:
    page.goto(f"/search?run={RUN}")
    main, counted = page.get_by_role("main"), page.locator(".search-bar .count")
    expect(main.get_by_role("heading", name="Most steerable experts, nats")).to_be_visible()
    expect(main.get_by_role("button", name=re.compile("^Expert .* in the tray$")).first).to_be_visible()
    main.get_by_role("button", name="numbers", exact=True).click()
    expect(page).to_have_url(re.compile("text=numbers"))
    expect(main.get_by_role("region", name="Matching experts")).to_be_visible(timeout=SECONDS)
    page.get_by_role("radio", name="A passage").click()
    page.get_by_role("textbox", name="Passage").fill(PASSAGE)
    page.get_by_role("button", name="Run through the model").click()
    expect(counted).to_have_text(re.compile(r"^[\d,]{2,} experts fire on the passage"))
    expect(page).to_have_url(re.compile(r"text=He\+said"))
    tokens = page.get_by_role("group", name="Tokens of the passage").get_by_role("button")
    tokens.filter(has_text="gust").click()
    expect(counted).to_have_text(re.compile(r"^([1-9]|1[0-6]) experts? fires? on the token"))
    expect(main.locator(".finding")).to_contain_text(re.compile(r"^Rarest.*activation [\d.]+ on ␣gust"))
    expect(main.get_by_role("columnheader", name="Active on")).to_have_count(0)
    page.get_by_role("button", name="Density ≤ 1 % only").click()
    expect(page).to_have_url(re.compile(r"max_density="))
    page.reload()
    expect(counted).to_contain_text("on the token")
    page.locator("table tbody tr").first.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+"))


PASSAGE = "He said: me gusta el libro. Then he went home."
EXPERTS = (DECIMAL_POINT, CLOSING_TAG, BRACKET)


def lists_of(page: Page, expert: int) -> Locator:
    page.goto(f"/experts/{expert}")
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("menuitem", name="Add to list").click()
    return page.get_by_role("dialog", name=f"Lists for expert {expert}")


def expect_order(page: Page, *experts: int) -> None:
    expect(page.locator(".found tbody td.c-id")).to_have_text([str(expert) for expert in experts])


def exported_rows(page: Page) -> list[dict[str, str]]:
    with downloaded(page, "Export", "CSV").path().open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def without_a_label(page: Page, site: Site) -> list[int]:
    """Experts whose only label is an automatic one that is good enough to be shown, and that no other test names."""
    rows = page.request.get(f"/api/runs/{site.run}/experts?limit=200&sort=density").json()["experts"]
    unlabelled = [row for row in rows if row["label"] is None and row["expert"] != UNLABELLED]
    return [row["expert"] for row in unlabelled if row["automatic"] and row["automatic"]["is_clear"]]


def test_a_list_is_created_sorted_annotated_and_exported(page: Page) -> None:
    dialog = lists_of(page, EXPERTS[0])
    dialog.get_by_role("textbox", name="New list name").fill("Worth showing")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("checkbox", name="Worth showing")).to_be_visible()
    for expert in EXPERTS[1:]:
        with page.expect_response(lambda answer: answer.request.method != "GET" and answer.ok):
            lists_of(page, expert).get_by_role("checkbox", name="Worth showing").check()
    page.goto("/lists")  # a former page; lists are filters of the table
    page.get_by_role("button", name="Worth showing").click()
    expect(page.get_by_role("region", name="Search and filters").get_by_role("status")).to_have_text("3 of 4,096")
    page.get_by_role("link", name="Open list").click()
    expect(page.get_by_role("navigation", name="Breadcrumbs").get_by_text("Worth showing")).to_be_visible()
    expect(page.get_by_role("button", name=f"Move {BRACKET} up")).to_be_enabled()
    expect_order(page, *EXPERTS)
    page.get_by_role("button", name=f"Move {BRACKET} up").click()
    expect_order(page, DECIMAL_POINT, BRACKET, CLOSING_TAG)
    note = page.get_by_role("textbox", name=f"Note on expert {DECIMAL_POINT}")
    note.fill("splits numbers")
    with page.expect_response(lambda answer: answer.request.method in ("PUT", "PATCH", "POST") and answer.ok):
        note.press("Enter")
    page.get_by_role("button", name=f"Remove {DECIMAL_POINT} from the list").click()
    expect(page.get_by_role("status").filter(has_text=f"Removed expert {DECIMAL_POINT}")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    expect(page.get_by_role("button", name=f"Remove {DECIMAL_POINT} from the list")).to_be_focused()
    expect_order(page, DECIMAL_POINT, BRACKET, CLOSING_TAG)
    page.get_by_role("button", name=f"Remove {CLOSING_TAG} from the list").click()
    expect_order(page, DECIMAL_POINT, BRACKET)
    page.reload()
    expect(note).to_have_value("splits numbers")
    expect_order(page, DECIMAL_POINT, BRACKET)
    rows = exported_rows(page)
    assert [int(row["expert"]) for row in rows] == [DECIMAL_POINT, BRACKET]
    assert "splits numbers" in rows[0].values()
    found = json.loads(downloaded(page, "Export", "JSON").path().read_bytes())
    assert "splits numbers" in json.dumps(found)


def test_undo_keeps_a_note_that_was_typed_just_before(page: Page, site: Site) -> None:
    body = {"name": "Noted and removed", "experts": [BRACKET, CLOSING_TAG]}
    lists = f"/api/runs/{site.run}/lists"
    number = page.request.post(lists, data=body).json()["id"]
    page.goto(f"/lists/{number}?run={site.run}")
    note = page.get_by_role("textbox", name=f"Note on expert {BRACKET}")
    expect(note).to_have_value("")
    delayed: list[Route] = []
    page.route(
        f"**{lists}/{number}",
        lambda route: delayed.append(route) if route.request.method == "GET" else route.continue_(),
    )  # the list is not read again in time
    note.fill("splits numbers")
    with page.expect_response(lambda answer: answer.request.method == "PATCH" and answer.ok):
        note.press("Enter")
    page.get_by_role("button", name=f"Remove {BRACKET} from the list").click()
    for route in delayed:
        route.continue_()
    page.unroute(f"**{lists}/{number}")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    page.reload()
    expect(note).to_have_value("splits numbers")


def test_experts_of_the_tray_are_saved_as_a_list_and_labelled(page: Page, site: Site) -> None:
    chosen = without_a_label(page, site)[0]
    page.goto(f"/experts?run={site.run}&edits={ANSWERING}:add:3,{chosen}:add:3")
    expect(page.get_by_role("heading", name="Experts")).to_be_attached()  # the tray may come before the page
    page.get_by_role("complementary", name="Tray").get_by_role("button", name="Tray").click()
    tray = page.get_by_role("region", name="Edits in the tray")
    expect(tray.get_by_role("listitem").first).to_contain_text("answering a question")
    expect_accessible(tray)
    tray.get_by_role("button", name="Add to list").click()
    page.get_by_role("textbox", name="New list name").fill("Two of them")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("checkbox", name="Two of them")).to_be_checked()
    page.get_by_role("link", name="Open list Two of them").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("button", name=f"Label {chosen}"))
    expect(row.get_by_role("link")).to_contain_text("automatic label")
    row.get_by_role("button", name=f"Label {chosen}").click()
    box = page.get_by_role("textbox", name=f"Label of {chosen}")
    box.fill("Accented letters")
    box.press("Enter")
    expect(row.get_by_role("link")).to_have_text("Accented letters")
    exported = exported_rows(page)
    assert [row["label"] for row in exported] == ["“System:” answering a question", "Accented letters"]
    assert exported[1]["automatic_label"] != ""


def test_a_user_label_takes_precedence_in_every_tab_and_a_tag_links_to_its_experts(page: Page, site: Site) -> None:
    expert = without_a_label(page, site)[-1]
    other = page.context.new_page()
    for tab in (page, other):
        tab.goto(f"/experts/{expert}")
        expect(tab.get_by_role("main").get_by_text("automatic label, ")).to_be_visible()
    press(page, "l")
    box = page.get_by_role("textbox", name=re.compile("label", re.I))
    box.fill("Seen in both")
    box.press("Enter")
    for tab in (page, other):
        expect(tab.get_by_role("heading", level=1)).to_have_text("Seen in both")
    page.get_by_label("Add tag").fill("asterisks")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="asterisks").click()
    expect(page).to_have_url(re.compile(r"tag=asterisks"))
    expect(page.get_by_role("region", name="Search and filters").get_by_role("status")).to_have_text("1 of 4,096")
