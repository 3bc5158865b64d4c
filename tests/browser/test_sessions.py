"""Sessions are saved, shared, opened and deleted; pages are shared as files and pictures."""

import json
import re
import struct
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import OpenPage, Site
from tests.browser.rest import hover
from tests.browser.sample import ANSWERING, RUN
from tests.browser.test_steering import ARMS, PROMPT, address, card, pane, texts
from tests.helpers.processes import wait_for

pytestmark = pytest.mark.browser


def test_a_session_is_saved_shared_opened_and_deleted(page: Page, open_page: OpenPage, site: Site) -> None:
    page.goto(address(f"{ANSWERING}:add:4@first:9", 12) + "&seed=5&temperature=1.1")
    written = texts(page)
    page.get_by_role("button", name="Save session").click()
    dialog = page.get_by_role("dialog", name="Save session")
    dialog.get_by_role("textbox", name="Session name").fill("Questions back")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Session")).to_contain_text("Questions back")
    page.get_by_role("link", name="Sessions", exact=True).click()
    gallery = page.get_by_role("region", name="Saved sessions")
    link = gallery.get_by_role("link", name="Questions back")
    gallery.get_by_role("searchbox", name="Filter sessions").fill("no such words")
    expect(gallery).to_contain_text("No session has “no such words”")
    gallery.get_by_role("searchbox", name="Filter sessions").fill(written[1].split()[0])
    expect(link).to_contain_text(written[1].split()[0])
    expect(link).to_contain_text(f"Expert {ANSWERING} +4.0")
    short = link.get_attribute("href") or ""
    assert re.fullmatch(r"/s/[2-9a-z]{7}", short)
    other = open_page()
    other.goto(short)
    expect(other).to_have_url(re.compile(r"/steering\?.*session="))
    # Both texts are there, with their shades, without being generated.
    for arm, text in zip(ARMS, written, strict=True):
        expect(pane(other, arm)).to_contain_text("stored with the session")
        assert other.get_by_role("group", name=f"{arm} text").inner_text() == text
    hover(other.get_by_role("group", name="Steered text").locator("[data-token]").first)
    expect(other.get_by_text("Δ log p by the edits")).to_be_visible()
    other.get_by_role("button", name="Generate", exact=True).click()
    assert texts(other) == written, "they are written again on request"
    expect(card(other, ANSWERING)).to_contain_text("first 9 tokens")
    expect(other.get_by_role("status").filter(has_text="Session")).to_contain_text("Questions back")
    other.get_by_role("link", name="Sessions", exact=True).click()
    listed = other.get_by_role("region", name="Saved sessions")
    listed.get_by_role("button", name="Delete Questions back").click()
    listed.get_by_role("button", name="Delete Questions back: press again").click()
    expect(listed.get_by_role("link", name="Questions back")).to_have_count(0)


def test_a_session_of_the_demo_can_be_opened(page: Page, site: Site) -> None:
    shipped = list(json.loads((site.data / "sessions.json").read_text("utf-8"))[site.run])
    page.goto(f"/steering?run={site.run}")
    page.get_by_role("link", name=re.compile(rf"^{re.escape(shipped[0])}")).first.click()
    expect(page).to_have_url(re.compile(r"/steering\?.*session="))
    default, steered = texts(page)
    assert steered != default
    expect(page.get_by_role("status").filter(has_text="Session")).to_contain_text(shipped[0])
    opened = page.url
    page.goto(f"/steering?run={site.run}&session={opened.split('session=')[1].split('&')[0]}")
    expect(page).to_have_url(opened)
    assert texts(page) == (default, steered)


def test_the_strength_sweep_suggests_a_strength(page: Page) -> None:
    page.goto(address(f"{ANSWERING}:add:1", 8))
    texts(page)
    page.get_by_role("link", name="Suggest a strength").click()
    expect(page.get_by_role("complementary", name="Tray")).to_be_hidden()
    sweep = page.get_by_role("region", name="Strength sweep")
    expect(sweep.get_by_role("row")).to_have_count(8)
    expect(sweep.get_by_role("status")).to_contain_text(re.compile("perplexity ×|No strength suits"))
    expect(sweep.get_by_role("status")).not_to_contain_text("so far")
    expect(sweep).to_contain_text("a random expert of similar density")
    row = sweep.get_by_role("row").nth(4)
    expect(row.get_by_role("cell").nth(1)).to_contain_text(re.compile(r"% \(control"))
    effects = sweep.get_by_role("columnheader", name="Side effects")
    effects.get_by_role("button", name="Measure").click()
    first = sweep.get_by_role("row").nth(2).get_by_role("cell").last
    expect(first).to_contain_text(re.compile(r"KL [\d.]+ × random, ability"), timeout=90_000)
    effects.get_by_role("button", name="Stop").click()
    expect(sweep.get_by_role("row").nth(1).get_by_role("cell").last).to_have_text("none")
    steered = row.get_by_role("cell").first.inner_text()
    sweep.get_by_role("radio", name="Control").click()
    expect(row.get_by_role("cell").first).not_to_have_text(steered)
    expect(row.get_by_role("cell").nth(1)).to_contain_text(re.compile(r"% \(steered"))
    expect(sweep.get_by_role("columnheader", name="Perplexity")).to_contain_text("of steered texts")
    row.get_by_role("button").click()
    expect(page).to_have_url(re.compile(rf"edits={ANSWERING}(:|%3A)add(:|%3A)2\b"))
    steer = sweep.get_by_role("link", name="Steer with")
    strength = steer.inner_text().split("+")[-1].split(",")[0].removesuffix(".0")
    steer.click()
    expect(page).to_have_url(re.compile(rf"/steering\?.*edits={ANSWERING}(:|%3A)add(:|%3A){strength}\b"))
    texts(page)


def test_edits_can_be_limited_to_clicked_prompt_tokens(page: Page) -> None:
    page.goto(address(f"{ANSWERING}:add:60", 12) + "&scope=chosen")
    default, steered = texts(page)
    assert steered == default, "no token is chosen yet"
    page.get_by_text("Scope of edits", exact=True).click()
    tokens = page.get_by_role("group", name="Prompt tokens to edit")
    tokens.get_by_role("button", name="said").click()
    expect(page).to_have_url(re.compile(r"[?&]at=4\b"))
    wait_for(lambda: len(set(texts(page))) == 2)
    expect(page.get_by_role("code")).to_contain_text("--positions 4")


def test_experts_of_two_layers_are_edited_together(page: Page) -> None:
    page.goto(f"/steering?run=demo-l3-k16&prompt={quote(PROMPT)}&tokens=12")
    edits = page.get_by_role("region", name="Edits")
    edits.get_by_role("combobox", name="Experts of").select_option("second")
    edits.get_by_role("combobox", name="Add an expert").fill("3")
    page.get_by_role("option").first.click()
    expect(card(page, 3)).to_contain_text("second")
    expect(page).to_have_url(re.compile(r"edits=second(/|%2F)3(:|%3A)add"))
    number = card(page, 3).get_by_role("textbox", name="Strength of expert 3")
    number.fill("1000")
    number.press("Enter")
    expect(page.get_by_role("code")).to_contain_text("--edit second/3:add:1000")
    default, steered = texts(page)
    assert steered != default


def shared(page: Page, name: str) -> Path:
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=name).click()
    return Path(download.value.path()).rename(Path(download.value.path()).with_name(download.value.suggested_filename))


def test_an_expert_is_shared_as_an_offline_page_and_as_a_picture(page: Page, browser: Browser) -> None:
    page.goto(f"/experts/{ANSWERING}?run={RUN}")
    saved = shared(page, "HTML page")
    assert saved.name == f"{RUN}-expert-{ANSWERING}.html"
    offline = browser.new_context(offline=True).new_page()
    offline.goto(saved.as_uri())
    hover(offline.locator("[data-tip]").first)
    assert RUN in offline.locator("footer").inner_text()
    offline.context.close()
    picture = shared(page, "PNG card").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (1200, 630)
    assert len(picture) > 10_000  # not blank
