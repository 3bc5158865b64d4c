"""The app shell: search, theme, shortcuts, run selection, tray, home page, missing pages, signing in."""

import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from mxd.backend.database.annotations import create_token
from mxd.backend.database.engine import opened
from mxd.trainer.storage.database.open import writing
from tests.browser.conftest import ANSWERING, OpenPage, Site
from tests.browser.rest import expect_accessible, hover, press, settle, violations
from tests.helpers.processes import server

pytestmark = pytest.mark.browser


def open_help(page: Page) -> None:
    page.get_by_role("button", name="Help and theme").click()


@pytest.fixture
def runs(page: Page) -> Page:
    """The page of runs, on which the shortcuts of the shell work."""
    page.goto("/runs?run=demo-l3-k16")
    expect(page.get_by_role("link", name="second", exact=True)).to_be_visible()
    return page


def test_the_chosen_theme_is_remembered_and_there_before_the_scripts(page: Page) -> None:
    page.goto("/runs")
    open_help(page)
    body = page.locator("body")
    light = str(body.evaluate("body => getComputedStyle(body).backgroundColor"))
    page.get_by_role("radio", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(body).not_to_have_css("background-color", light)
    page.route("**/assets/*.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
    page.reload()
    expect(page.locator(".brand")).to_have_text("MxD Explorer")
    expect(body).not_to_have_css("background-color", light)
    expect(page.get_by_role("navigation")).to_have_count(0)
    page.unroute_all()
    page.reload()
    open_help(page)
    expect(page.get_by_role("radio", name="Dark")).to_be_checked()
    page.get_by_role("radio", name="Auto").click()
    expect(body).to_have_css("background-color", light)
    page.emulate_media(color_scheme="dark")
    expect(body).not_to_have_css("background-color", light)


def test_the_first_tab_stop_skips_to_the_content_and_shortcuts_are_listed(runs: Page) -> None:
    press(runs, "Tab")
    expect(runs.get_by_role("link", name="Skip to content")).to_be_focused()
    runs.keyboard.press("Enter")
    expect(runs.get_by_role("main")).to_be_focused()
    press(runs, "?")
    dialog = runs.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_contain_text("Search experts, pages and runs")
    expect_accessible(dialog)
    press(runs, "t")
    expect(dialog).to_be_visible()
    expect(runs).to_have_url(re.compile("/runs"))
    runs.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    open_help(runs)
    runs.get_by_role("button", name="Keyboard shortcuts").click()
    expect(runs.locator("[role=dialog]:focus, [role=dialog] :focus")).to_have_count(1)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    expect(runs.get_by_role("button", name="Help and theme")).to_be_focused()


def test_one_search_opens_experts_pages_and_edits(runs: Page) -> None:
    box = runs.get_by_role("combobox", name="Search experts, pages and runs")
    chosen = runs.get_by_role("option", selected=True)
    press(runs, "/")
    expect(box).to_be_focused()
    # The list of an earlier text, such as "d", has that expert too, but not as its first row.
    box.press_sequentially("decimal")
    expect(runs.get_by_role("option")).to_have_text(
        [re.compile(text) for text in ("Decimal point", "All matches", "^Decimals")]
    )
    expect_accessible(runs.get_by_role("dialog", name="Search"))
    for query in ("html", "the", str(ANSWERING)):
        box.fill(query)
        expect(runs.get_by_role("option").filter(has_text=re.compile(query, re.IGNORECASE)).first).to_be_visible()
    for key, typed, shown, address in (
        ("/", "decimal point", r"^\d+\s*Decimal point", r"/experts/\d+\?run=demo-l3-k16"),
        ("Control+k", "zzqqx", "Run “zzqqx” through the model", "kind=passage"),
        ("Control+k", "sessions", "sessions", r"/sessions\?run=demo-l3-k16"),
        ("/", str(ANSWERING), str(ANSWERING), rf"/experts/{ANSWERING}\?run=demo-l3-k16"),
        ("Control+k", "steer 46 +2", "46", r"/steering\?run=demo-l3-k16&edits=46(:|%3A)add(:|%3A)2"),
    ):
        if box.count() == 0:
            press(runs, key)
        box.fill(typed)
        expect(chosen).to_contain_text(re.compile(shown, re.IGNORECASE))
        box.press("Enter")
        expect(runs).to_have_url(re.compile(address))
        expect(box).to_have_count(0)
    # Before the experts are known, Enter opens the number, else all matches.
    runs.route("**/api/search?*", lambda _: None)
    for typed, address in ((str(ANSWERING), rf"/experts/{ANSWERING}\?"), ("fox", r"/search\?run=demo-l3-k16&text=fox")):
        press(runs, "Control+k")
        box.fill(typed)
        box.press("Enter")
        expect(runs).to_have_url(re.compile(address))
    runs.unroute("**/api/search?*")
    runs.goto("/search?run=demo-l3-k16&q=decimal")
    expect(runs.get_by_role("textbox", name="Words")).to_have_value("decimal")


def test_a_narrow_screen_has_tabs_and_sheets_and_its_search_leads_to_the_search_page(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto("/experts?run=demo-l3-k16&search=decimal")
    row = page.get_by_role("row").filter(has_text="Decimal point")
    row.get_by_role("button", name=re.compile("in the tray")).tap()
    expect(row.get_by_role("button", name=re.compile("in the tray"))).to_have_attribute("aria-pressed", "true")
    row.get_by_role("link", name="Decimal point").tap()
    expect(page).to_have_url(re.compile(r"/experts/\d+"))
    page.goto("/experts?run=demo-l3-k16&sort=max_activation")
    expect(page.locator("td.c-label", has_text="automatic label").first).to_be_visible()
    page.get_by_role("navigation", name="Places").get_by_role("link", name="Prompt").tap()
    expect(page.get_by_role("textbox", name="Prompt")).to_be_visible()
    for text, last, kind in (("the", "All matches of “the”", "words"), ("zzqqx", "Run “zzqqx”", "passage")):
        page.get_by_role("button", name="Search", exact=True).tap()
        expect(page.get_by_role("dialog", name="Search").get_by_role("combobox")).to_be_focused()
        page.get_by_role("combobox").fill(text)
        expect(page.get_by_role("option").last).to_contain_text(last)
        if kind == "words":
            expect(page.get_by_role("option").filter(has_text="label").first).to_be_visible()
        else:
            expect(page.get_by_text("No label, top token or top example contains “zzqqx”")).to_be_visible()
        page.get_by_role("option").last.tap()
        expect(page).to_have_url(re.compile(rf"/search\?.*(kind={kind}|text={text})"))
        expect(page.get_by_role("textbox", name="Words" if kind == "words" else "Passage")).to_have_value(text)


def test_the_selected_run_applies_to_all_pages(page: Page, site: Site) -> None:
    page.goto(f"/experts?run={site.run}&search=html")
    page.get_by_role("button", name=re.compile(site.run)).click()
    expect_accessible(page.get_by_role("listbox"))
    page.get_by_role("option", name=re.compile(site.other_run)).click()
    expect(page).to_have_url(re.compile(rf"/experts\?run={site.other_run}&search=html$"))
    expect(page.get_by_text(f"mxd index {site.other_run}")).to_be_visible()
    page.get_by_role("link", name="MxD Explorer, home").click()
    expect(page.get_by_text("has not been indexed yet").first).to_be_visible()
    for name, words in (("Prompt", "Type a text"), ("Steer", "The tray is empty")):
        page.get_by_role("navigation", name="Places").get_by_role("link", name=name).click()
        expect(page).to_have_url(re.compile(f"run={site.other_run}"))
        expect(page.get_by_text(words).first).to_be_visible()
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("region", name="Runs").get_by_role("link", name=site.other_run, exact=True).click()
    expect(page.get_by_role("heading", name=site.other_run, exact=True)).to_be_visible()
    expect(page.get_by_text("finished").first).to_be_visible()


def test_tabs_collect_experts_into_one_tray_and_terms_lead_to_the_glossary(page: Page) -> None:
    page.goto("/experts?run=demo-l3-k16")
    expect(page.get_by_role("row").nth(3)).to_be_visible()
    tray, second = page.get_by_role("complementary", name="Tray"), page.context.new_page()
    second.goto(f"/experts/{ANSWERING}?run=demo-l3-k16&details=1")
    second.get_by_role("button", name="Add to tray").click()
    expect(tray).to_contain_text(str(ANSWERING))
    density = second.get_by_role("link", name="Density")
    hover(density)
    expect(second.get_by_role("tooltip")).to_contain_text("Share of tokens on which the expert is active")
    density.click()
    expect(second).to_have_url(re.compile(r"/glossary\?run=demo-l3-k16.*#density$"))
    expect(second.get_by_text("A dead expert is never active.")).to_be_in_viewport()
    expect(second.get_by_role("tooltip")).to_have_count(0)
    second.goto("/steering?run=demo-l3-k16&edits=40:ablate&tokens=1")
    expect(second.get_by_role("region", name="Edits").or_(second.get_by_text("40")).first).to_be_visible()
    expect(tray).not_to_contain_text("40")


def test_pages_work_while_the_browser_counts_as_offline(runs: Page) -> None:
    runs.evaluate("window.dispatchEvent(new Event('offline'))")
    runs.get_by_role("navigation", name="Places").get_by_role("link", name="Explore").click()
    runs.get_by_role("row").nth(3).get_by_role("link").first.click()
    expect(runs.get_by_role("group", name="Example 1", exact=True).first).to_be_visible()


def test_pages_recover_by_themselves_when_the_server_is_back(page: Page, forgiven: list[str]) -> None:
    forgiven += ["Failed to load resource", "net::ERR_FAILED"]
    page.clock.install()
    page.goto("/runs?run=demo-l3-k16")
    expect(page.get_by_role("link", name="second", exact=True)).to_be_visible()
    page.route("**/api/**", lambda route: route.abort())
    page.get_by_role("navigation", name="Places").get_by_role("link", name="Explore").click()
    for _ in range(5):
        page.clock.run_for(5_000)  # the pauses between attempts
    expect(page.get_by_role("alert").first).to_contain_text("The server does not respond")
    expect(page.get_by_role("contentinfo")).to_contain_text("The server does not respond")
    page.unroute_all()
    page.clock.run_for(20_000)
    expect(page.get_by_role("row").nth(3)).to_be_visible()
    expect(page.get_by_role("contentinfo")).to_contain_text("Database")


def test_the_home_page_steers_a_text_by_slider(page: Page, site: Site) -> None:
    page.goto("/")
    text = page.get_by_role("group", name=re.compile("(Steered|Original) text"))
    expect(text).not_to_be_empty()
    settle(page)
    steered = text.inner_text()
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(page).to_have_url(re.compile("strength=0"))
    expect(page.get_by_role("group", name="Original text")).not_to_be_empty()
    expect(page.get_by_role("complementary", name="Original")).to_be_visible()  # also of a generated text
    settle(page)
    assert text.inner_text() not in ("", steered), "the slider's first position changes the text"
    expect(page.get_by_role("region", name=re.compile("^Expert ")).get_by_role("paragraph")).to_have_count(3)
    generate = page.get_by_role("button", name="Generate")
    expect(generate).to_be_disabled()
    page.get_by_role("textbox", name="Prompt to continue").fill("One day")
    expect(page.locator("[data-outdated]")).to_be_visible()
    generate.click()
    expect(page).to_have_url(re.compile(r"prompt=One\+day"))
    expect(page.locator("[data-outdated]")).to_have_count(0)
    page.get_by_role("textbox", name="Prompt to continue").fill("")
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile("prompt="))
    prompt = page.get_by_role("textbox", name="Prompt to continue")
    expect(prompt).not_to_be_empty()
    present = page.get_by_role("button", name="Presentation")
    present.click()
    assert (prompt.bounding_box() or {"width": 0})["width"] > 400  # an audience reads it
    present.click()
    page.get_by_role("link", name="Find an expert").click()
    expect(page).to_have_url(re.compile("/search"))
    page.goto("/#tour-1")
    tour, status = page.get_by_role("complementary", name="Tour"), page.get_by_role("contentinfo")
    for step in range(1, 7):
        expect(tour).to_contain_text(f"Tour, {step} of 6")
        expect(page.locator("[data-toured]")).to_have_count(1)
        ends = [box["y"] + box["height"] * (part is tour) for part in (tour, status) if (box := part.bounding_box())]
        assert ends[0] == pytest.approx(ends[1], abs=2), "the tour is on the status line, however short the page"
        tour.get_by_role("link", name=re.compile("Next|Done")).click()
    page.goto("/#tour-3")
    expect(page).to_have_url(re.compile(r"/routing\?.*#tour-3$"))
    page.goto(f"/evaluate?run={site.run}#tour-6-{site.other_run}")  # the last step may be about another run
    tour.get_by_role("link", name="Done").click()
    expect(page).to_have_url(re.compile(rf"/\?run={site.other_run}$"))


def test_the_home_page_shows_stored_texts_at_once(page: Page, site: Site) -> None:
    steering = {"prompt": "One day", "edits": [{"expert": 12, "mode": "add", "strength": 2}]}
    saved = page.request.post(f"/api/runs/{site.run}/sessions", data={"name": "Verse", "steering": steering})
    texts = [
        {
            "strength": strength,
            "tokens": [{"id": 5, "text": f" text at {strength}", "delta_log_probability": strength}],
            "random": f" other text at {strength}" if strength else "",
            "perplexity_ratio": 1.4 * strength,
        }
        for strength in (0, 1, 2)
    ]
    stored = {
        "run": site.run,
        "session": "Verse",
        "title": "write verse",
        "prompt": "Two days",
        "command": "mxd steer",
        "controls": [7],
        "texts": texts,
    }
    file = site.data / "showcase.json"
    file.write_text(json.dumps(stored), "utf-8")
    try:
        page.route("**/steering", lambda route: route.abort())  # nothing is generated
        page.goto(f"/?run={site.other_run}")
        expect(page.get_by_role("heading", name="write verse")).to_be_visible()
        expect(page.get_by_role("group", name="Steered text")).to_have_text("text at 1")  # the strongest fluent one
        hero = page.get_by_role("region", name="Steering a text")
        expect(hero).not_to_contain_text("above the limit")
        page.get_by_role("radio", name="Random expert 7").click()
        expect(page.get_by_role("complementary", name="Random expert")).to_contain_text("Two days other text at 1")
        page.get_by_role("slider").focus()
        page.keyboard.press("End")
        expect(page.get_by_role("group", name="Steered text")).to_have_text("text at 2")
        expect(hero).to_contain_text("Perplexity of this text ×\u00a02.8, above the limit")
        page.get_by_role("radio", name="Original").click()
        original = page.get_by_role("complementary", name="Original")
        expect(original).to_contain_text("Two days text at 0")
        page.get_by_role("link", name="use this run").click()
        expect(page).to_have_url(re.compile(rf"run={site.run}\b"))
        expect(page.get_by_role("link", name="use this run")).to_have_count(0)
        page.goto("/")
        expect(page).to_have_url(re.compile(rf"run={site.run}\b"))  # the example is about the run of the menu
        page.get_by_role("slider").focus()
        page.keyboard.press("Home")
        expect(page.get_by_role("group", name="Original text")).to_have_text("text at 0")
        expect(original).to_be_visible()
        file.write_text("{}", "utf-8")
        assert "damaged" in page.request.get("/api/showcase").text()
    finally:
        file.unlink()
        page.request.delete(f"/api/sessions/{saved.json()['id']}")
    assert page.request.get("/api/showcase").json() == {"showcase": None}


def test_missing_pages_experts_runs_and_sessions_show_errors(page: Page, forgiven: list[str]) -> None:
    forgiven += ["404"]
    page.goto("/nowhere/at/all")
    page.get_by_role("link", name="Go to Home").click()
    expect(page.get_by_role("region", name="Steering a text")).to_be_visible()
    page.goto("/experts/99999?run=demo-l3-k16")
    expect(page.get_by_role("heading", name="Expert 99999 not found")).to_be_visible()
    page.goto("/experts/first?run=demo-l3-k16")
    expect(page.get_by_role("heading", name="Expert first not found")).to_be_visible()
    page.goto("/runs/no-such-run")
    expect(page.get_by_role("heading", name="Run no-such-run not found")).to_be_visible()
    page.goto("/experts?run=no-such-run")
    expect(page.get_by_text(re.compile("no-such-run")).first).to_be_visible()
    expect(page.get_by_role("button", name="not found, choose another")).to_be_visible()
    page.goto("/s/zzzzzzz")
    expect(page.get_by_role("alert")).to_contain_text("Unknown session: zzzzzzz")
    page.get_by_role("alert").get_by_role("link", name="Sessions").click()
    expect(page.get_by_role("region", name="Saved sessions")).to_be_visible()


def test_an_access_token_signs_in(site: Site, tmp_path: Path, open_page: OpenPage, forgiven: list[str]) -> None:
    path = tmp_path / "database.sqlite"
    shutil.copy(site.database.removeprefix("sqlite:///"), path)
    with opened(f"sqlite:///{path}") as database, writing(database) as session:
        token = create_token(session, "read", "browser").token
    forgiven += ["401"]
    page = open_page()
    with server(site.data, "--database", f"sqlite:///{path}", "--access", "tokens") as (url, _):
        page.goto(f"{url}/runs")
        expect(page.get_by_role("heading", name="Sign in to MxD Explorer")).to_be_visible()
        assert violations(page) == []
        page.get_by_label("Token").fill("mxd_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("Unknown token")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        expect(page.get_by_text("Signed in: read access")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in to MxD Explorer")).to_be_visible()
        page.close()
