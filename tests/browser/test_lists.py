"""Lists and tags: made, filled, put in order, noted on, exported."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import Site
from tests.browser.rest import press
from tests.browser.sample import ANSWERING, BRACKET, CLOSING_TAG, DECIMAL_POINT, UNLABELLED

pytestmark = pytest.mark.browser

EXPERTS = (DECIMAL_POINT, CLOSING_TAG, BRACKET)


def lists_of(page: Page, expert: int) -> Locator:
    page.goto(f"/experts/{expert}")
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("menuitem", name="Add to list").click()
    return page.get_by_role("dialog", name=f"Lists for expert {expert}")


def expect_order(page: Page, *experts: int) -> None:
    expect(page.locator(".found tbody td.c-id")).to_have_text([str(expert) for expert in experts])


def without_a_label(page: Page, site: Site) -> list[int]:
    """Experts that only a program has labelled, and that no other test names."""
    rows = page.request.get(f"/api/runs/{site.run}/experts?limit=200&sort=density").json()["experts"]
    return [row["expert"] for row in rows if is_named(row) and row["expert"] != UNLABELLED]


def is_named(row: dict[str, Any]) -> bool:
    """True if the only label is an automatic one that is good enough to be shown."""
    automatic = row["automatic"]
    return row["label"] is None and automatic is not None and bool(automatic["is_clear"])


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
    rows = list(csv.DictReader(io.StringIO(downloaded(page, "CSV"))))
    assert [int(row["expert"]) for row in rows] == [DECIMAL_POINT, BRACKET]
    assert "splits numbers" in rows[0].values()
    found = json.loads(downloaded(page, "JSON"))
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
    page.get_by_role("complementary", name="Tray").get_by_role("button", name="Tray").click()
    tray = page.get_by_role("region", name="Edits in the tray")
    expect(tray.get_by_role("listitem").first).to_contain_text("answering a question")
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
    exported = list(csv.DictReader(io.StringIO(downloaded(page, "CSV"))))
    assert [row["label"] for row in exported] == ["“System:” answering a question", "Accented letters"]
    assert exported[1]["automatic_label"] != ""


def downloaded(page: Page, kind: str) -> str:
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=kind, exact=True).click()
    return Path(download.value.path()).read_text("utf-8")


def test_a_tag_links_to_its_experts(page: Page) -> None:
    page.goto("/experts/873")
    page.get_by_label("Add tag").fill("asterisks")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="asterisks")).to_be_visible()
    page.get_by_role("link", name="asterisks").click()
    expect(page).to_have_url(re.compile(r"tag=asterisks"))
    expect(page.get_by_role("region", name="Search and filters").get_by_role("status")).to_have_text("1 of 4,096")


def test_a_user_label_takes_precedence_over_the_automatic_one_in_every_tab(page: Page, site: Site) -> None:
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
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Seen in both")
