"""Two pasted texts are compared, and the experts of either direction have examples from both."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.axe import violations
from tests.browser.rest import press

pytestmark = pytest.mark.browser

ENGLISH = "\n\n".join(["He said that the old man went home."] * 12)
SPANISH = "\n\n".join(["me gusta el libro de la casa."] * 12)


def test_pasted_texts_are_compared(page: Page) -> None:
    page.goto("/contrast")
    start = page.get_by_role("button", name="Compare")
    expect(start).to_be_disabled()
    page.get_by_role("textbox", name="Documents of text A").fill(ENGLISH)
    page.get_by_role("textbox", name="Documents of text B").fill(SPANISH)
    expect(page.get_by_text("12 documents")).to_have_count(2)
    start.click()
    table = page.get_by_role("region", name="Experts that tell the texts apart")
    expect(table).to_be_visible(timeout=60_000)  # the language model is loaded on first use
    expect(page.get_by_text("documents assigned to A and B at random")).to_be_visible()
    expect(page.get_by_text(re.compile("only in A")).first).to_be_visible()
    page.get_by_role("button", name="Labelled only").click()
    expect(page.get_by_text("None of these experts has a label").or_(table)).to_be_visible()
    page.get_by_role("button", name="Labelled only").click()
    expect(table.get_by_role("region", name="Examples in A: A")).to_contain_text(re.compile("man|home|said|went|old"))
    page.get_by_role("radio", name=re.compile("More often in B: [1-9]")).click()
    expect(page).to_have_url(re.compile("more_in=b"))
    expect(table.get_by_role("region", name="Examples in B: B")).to_contain_text(re.compile("libro|casa|gusta"))
    assert violations(page) == []
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="CSV").click()
    assert download.value.suggested_filename.endswith(".csv")
    table.locator("tbody").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+"))


def test_two_kinds_are_chosen_on_opening(page: Page) -> None:
    kinds = [{"kind": kind, "documents": count, "characters": 9000} for kind, count in (("story", 40), ("code", 1))]
    options = {"run": "", "layers": [], "chat": False, "no_chat": "", "kinds": {"text": "text.jsonl", "kinds": kinds}}
    page.route("**/options?kinds=true", lambda route: route.fulfill(json=options))
    page.goto("/contrast")
    for side, kind, shown in (("A", "story", "story (40 documents)"), ("B", "code", "code (1 document)")):
        source = page.get_by_role("combobox", name=f"Source of text {side}")
        expect(source).to_have_value(kind)
        expect(source.get_by_role("option", name=shown, exact=True)).to_have_count(1)
    expect(page.get_by_role("button", name="Compare")).to_be_enabled()
    started: list[dict[str, object]] = []

    def refuse(route: Route) -> None:
        started.append(route.request.post_data_json or {})
        error = {"event": "error", "error": {"code": "failed", "message": "No model."}}
        route.fulfill(content_type="text/event-stream", body=f"data: {json.dumps(error)}\n\n")

    page.route("**/contrast", refuse)
    press(page, "Control+Enter")
    expect(page.get_by_role("alert")).to_have_text("No model.")
    tokens = page.get_by_role("textbox", name="Tokens per text")
    tokens.fill("512")
    with page.expect_response("**/contrast"):
        press(page, "Control+Enter")
    tokens.fill("256")
    with page.expect_response("**/contrast"):
        page.get_by_role("button", name="Compare").click()
    assert [each["tokens"] for each in started] == [8192, 512, 256]
    page.get_by_role("combobox", name="Source of text B").select_option("story")
    expect(page.get_by_text("Choose two different kinds.")).to_be_visible()
    page.get_by_role("combobox", name="Source of text B").select_option("Own text")
    expect(page.get_by_role("textbox", name="Documents of text B")).to_be_visible()
