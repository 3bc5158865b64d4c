"""Steering: sliders, two texts as they come, and an address that writes them again; sessions, sharing."""

import json
import re
import struct
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser.conftest import ANSWERING, BRACKET, RUN, OpenPage, Site
from tests.browser.rest import downloaded, expect_accessible, holding, hover
from tests.helpers.processes import wait_for

pytestmark = pytest.mark.browser

PROMPT = "The little girl said"
ARMS = ("Baseline", "Steered")
DONE = re.compile(r"done, \d+ tokens")


def address(edits: str, tokens: int) -> str:
    return f"/steering?run=demo-l3-k16&prompt={quote(PROMPT)}&edits={edits}&tokens={tokens}"


def pane(page: Page, arm: str) -> Locator:
    return page.get_by_role("region", name=arm, exact=True)


def texts(page: Page) -> tuple[str, ...]:
    """Both texts, once they are done."""
    for arm in ARMS:
        expect(pane(page, arm)).to_contain_text(DONE)
    return tuple(page.get_by_role("group", name=f"{arm} text").inner_text() for arm in ARMS)


def card(page: Page, expert: int) -> Locator:
    cards = page.get_by_role("region", name="Edits").get_by_role("listitem")
    return cards.filter(has=page.get_by_role("button", name=f"Remove expert {expert} from the tray"))


def test_moving_a_slider_by_key_regenerates_the_text(page: Page) -> None:
    page.goto(address(f"{ANSWERING}:add:0", 24))
    default, steered = texts(page)
    assert steered == default, "nothing is added"
    slider = card(page, ANSWERING).get_by_role("slider")
    number = card(page, ANSWERING).get_by_role("textbox", name=f"Strength of expert {ANSWERING}")
    slider.focus()
    page.keyboard.press("ArrowRight")
    step = float(slider.input_value())
    assert step > 0
    expect(number).to_have_value(re.compile(rf"^{step}"))
    page.keyboard.press("Shift+ArrowRight")
    expect(slider).to_have_value(re.compile(rf"^{11 * step:g}"))
    page.keyboard.press("End")
    largest = slider.get_attribute("max") or ""
    expect(slider).to_have_value(largest)
    expect(page).to_have_url(re.compile(rf"edits={ANSWERING}(:|%3A)add(:|%3A){largest}\b"))
    again, louder = texts(page)
    assert again == default
    assert louder != default
    measures = page.get_by_role("region", name="Measures of the tray")
    measures.get_by_role("button", name="Measure side effects").click()
    expect(measures).to_contain_text(re.compile(r"\d+ of \d+ texts"))
    expect(measures.get_by_role("status")).to_contain_text("KL", timeout=90_000)


def test_full_replacement_with_smaller_k_changes_the_baseline(page: Page) -> None:
    page.goto(address(f"{ANSWERING}:add:0", 24) + "&mode=replace&temperature=0")
    default, _ = texts(page)
    page.get_by_text("Active experts per token", exact=True).click()
    slider = page.get_by_role("slider", name="Active experts per token")
    expect(slider).to_have_value("16")
    slider.focus()
    page.keyboard.press("Home")
    expect(page).to_have_url(re.compile(r"[?&]k=1\b"))
    expect(page.get_by_role("region", name="Use this in code")).to_contain_text("--k 1")
    expect(page.get_by_role("group", name="Baseline text")).not_to_have_text(default)
    fewer, _ = texts(page)
    page.reload()
    assert texts(page)[0] == fewer != default


def test_both_texts_are_streamed_and_stop_keeps_them(page: Page) -> None:
    page.goto(address(f"{ANSWERING}:add:2", 400))
    for arm in ARMS:
        expect(pane(page, arm)).to_contain_text(re.compile(r"\d+ of 400 tokens, [\d.]+ tokens/s"))
    page.get_by_role("button", name="Stop").click()
    for arm in ARMS:
        expect(pane(page, arm)).to_contain_text(re.compile(r"stopped after \d+ tokens"))
        assert page.get_by_role("group", name=f"{arm} text").get_by_role("button").count() > 0
    expect(page.get_by_role("button", name="Generate")).to_be_visible()
    page.reload()
    expect(pane(page, "Baseline")).to_contain_text("of 400 tokens")
    page.keyboard.press("Escape")
    expect(pane(page, "Baseline")).to_contain_text("stopped after")


def test_a_token_shows_the_kl_and_reset_makes_both_texts_equal(page: Page) -> None:
    page.goto(address(f"{ANSWERING}:add:6,40:ablate", 16))
    default, steered = texts(page)
    assert steered != default
    tokens = page.get_by_role("group", name="Steered text").get_by_role("button")
    tip = page.get_by_role("tooltip")
    hover(tokens.nth(3))
    expect(tip).to_contain_text("KL between variants")
    tokens.nth(3).click()
    expect(page).to_have_url(re.compile(r"lock=steered\.0\.3"))
    page.mouse.move(5, 5)
    expect(tip).to_contain_text("Active experts, before edits")
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("lock="))
    expect(tip).to_have_count(0)
    page.get_by_role("button", name="Reset").click()
    expect(card(page, ANSWERING).get_by_role("slider")).to_have_value("0")
    expect(card(page, 40).get_by_role("slider")).to_have_value("1")
    assert texts(page) == (default, default)
    page.go_back()
    expect(card(page, ANSWERING).get_by_role("slider")).to_have_value("6")
    assert texts(page) == (default, steered)


def test_opening_the_url_elsewhere_reproduces_the_texts(page: Page, open_page: OpenPage) -> None:
    page.goto(address("", 4))
    expect(page.get_by_text("Press Generate to continue the prompt")).to_be_visible()
    expect(pane(page, "Steered")).to_have_count(0)
    page.get_by_role("textbox", name="Prompt").fill(f"{PROMPT} that")
    page.get_by_role("button", name="Generate").click()
    expect(pane(page, "Baseline")).to_contain_text(DONE)
    expect(pane(page, "Steered")).to_contain_text("The tray is empty, so the steered text is the baseline")
    page.get_by_role("textbox", name="Add an expert").focus()
    search = page.get_by_role("combobox", name="Add an expert")
    search.fill(str(ANSWERING))
    expect(page.get_by_role("option").first).to_be_visible()
    with holding(page, "**/api/runs/*/steering"):
        search.press("Enter")
        expect(card(page, ANSWERING)).to_be_visible()
        page.get_by_text("Sampling", exact=True).click()
        expect(pane(page, "Steered")).to_contain_text("updating")
        expect_accessible(page.get_by_role("textbox", name="Seed"))
    for setting, value in (("Seed", "7"), ("Tokens", "20"), ("Temperature", "1.2")):
        page.get_by_role("textbox", name=setting, exact=True).fill(value)
        page.get_by_role("textbox", name=setting, exact=True).press("Enter")
    expect(page).to_have_url(re.compile("seed=7"))
    expect(pane(page, "Steered")).to_contain_text("done, 20 tokens")
    written = texts(page)
    other = open_page(color_scheme="dark")
    other.goto(page.url)
    assert texts(other) == written
    expect(card(other, ANSWERING)).to_be_visible()
    expect(other.get_by_text("temperature 1.2, 20 tokens, seed 7")).to_be_visible()


def test_an_edit_applies_on_a_condition(page: Page) -> None:
    page.goto(address(f"{ANSWERING}:add:6", 12))
    default, steered = texts(page)
    edit = card(page, ANSWERING)
    edit.locator("summary").click()
    edit.get_by_role("textbox", name="Expert to test").fill(str(BRACKET))
    edit.get_by_role("button", name="Add", exact=True).click()
    expect(edit.locator("summary")).to_contain_text(f"when expert {BRACKET} is above its median")
    expect(page.get_by_role("group", name="Steered text")).to_have_text(default)  # it never fires here
    edit.get_by_role("button", name="Remove the test").click()
    edit.get_by_role("textbox", name="Only the first").fill("4")
    edit.get_by_role("textbox", name="Only the first").press("Enter")
    expect(page.get_by_role("region", name="Use this in code")).to_contain_text("@first:4")
    page.reload()
    expect(card(page, ANSWERING)).to_contain_text("first 4 tokens")
    assert texts(page)[1] != default
    assert steered != default


def test_a_suggestion_adds_a_card_that_can_be_removed(page: Page) -> None:
    page.goto("/steering?run=demo-l3-k16")
    posted: list[str] = []
    page.on("request", lambda request: posted.append(f"{request.method} {request.url}"))
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.press("Control+Enter")  # nothing to continue
    edits = page.get_by_role("region", name="Edits")
    suggestion = edits.get_by_role("list").get_by_role("button", name="in the tray").first
    expert = int((suggestion.get_attribute("aria-label") or "").split()[1])
    suggestion.click()
    expect(card(page, expert)).to_be_visible()
    assert not [each for each in posted if each.startswith("POST") and "steering" in each]
    prompt.press("Control+Enter")  # what the empty box shows
    expect(prompt).to_have_value("When I opened the door, I saw")
    expect(page.get_by_role("group", name="Steered text")).not_to_be_empty()
    card(page, expert).get_by_role("radio", name="ablate").click()
    expect(card(page, expert).get_by_role("slider")).to_have_count(0)
    expect(page).to_have_url(re.compile(rf"edits={expert}(:|%3A)ablate"))
    card(page, expert).get_by_role("button", name="from the tray").click()
    expect(page.get_by_text("The tray is empty.")).to_be_visible()


CHAT = f"turns={quote(json.dumps([['user', 'The little girl']]))}&edits={ANSWERING}:add:4&tokens=8"


def _continue_turns_as_text(route: Route) -> None:
    """The demo's tokenizer has no chat template."""
    request = dict(route.request.post_data_json or {})
    turns = request.pop("turns", None)
    if turns:
        field = "text" if route.request.url.endswith("/routing") else "prompt"
        request[field] = " ".join(f"<|im_start|>{turn['role']} {turn['text']}" for turn in turns)
    route.continue_(post_data=json.dumps(request))


@pytest.fixture
def chats(page: Page) -> Page:
    page.route("**/api/runs/*/routing", _continue_turns_as_text)
    page.route("**/api/runs/*/steering", _continue_turns_as_text)
    return page


def test_a_second_turn_continues_two_chats_without_showing_the_template(chats: Page) -> None:
    histories: list[tuple[int, str]] = []

    def record(route: Route) -> None:
        request = route.request.post_data_json or {}
        if len(request["turns"]) > 1:
            histories.append((len(request["edits"]), request["turns"][1]["text"]))
        _continue_turns_as_text(route)

    chats.route("**/api/runs/*/steering", record)
    chats.goto(f"/steering?run=demo-l3-k16&{CHAT}")
    original, steered = texts(chats)
    expect(chats.get_by_role("region", name="Use this in code")).to_contain_text("im_start")
    for arm in ARMS:
        expect(pane(chats, arm)).not_to_contain_text("im_start")
        expect(pane(chats, arm).get_by_role("listitem")).to_have_text(["user: The little girl"])
    message = chats.get_by_role("textbox", name="Message to both")
    message.fill("And then?")
    message.press("Enter")
    for arm, reply in zip(ARMS, (original, steered), strict=True):
        turns_of_arm = pane(chats, arm).get_by_role("listitem")
        expect(turns_of_arm).to_have_count(3)
        expect(turns_of_arm.nth(1)).to_contain_text(reply.strip())
    texts(chats)
    expect(chats.locator(".finding")).to_contain_text("random expert")
    chats.get_by_text("The random expert’s reply").click()
    random = chats.get_by_role("group", name="Control text").inner_text()
    assert random not in ("", chats.get_by_role("group", name="Steered text").inner_text())
    assert sorted(histories) == [(0, original.strip()), (1, steered.strip()), (1, steered.strip())]


def test_the_code_of_a_chat_waits_for_its_text_and_other_pages_keep_its_messages(chats: Page) -> None:
    code = chats.get_by_role("region", name="Use this in code")
    with holding(chats, "**/api/runs/*/routing", _continue_turns_as_text):
        chats.goto(f"/chat?run=demo-l3-k16&{CHAT}")
        expect(pane(chats, "Steered").get_by_role("listitem")).to_have_count(1)
        expect(code).to_have_count(0)
    expect(code).to_contain_text("The little girl")
    places, prompt = (chats.get_by_role("navigation", name="Places"), chats.get_by_role("textbox", name="Prompt"))
    places.get_by_role("link", name="Prompt").click()
    expect(prompt).to_have_value("<|im_start|>user The little girl")
    places.get_by_role("link", name="Steer").click()
    expect(pane(chats, "Steered").get_by_role("listitem")).to_have_text(["user: The little girl"])
    chats.get_by_role("button", name="New chat").click()
    chats.get_by_role("link", name="Strength", exact=True).click()
    expect(prompt).to_have_value("")


def test_an_early_message_waits_for_the_answers_and_the_sweep_offers_the_plain_text(chats: Page) -> None:
    chats.route("**/api/runs/*/steering/sweep", _continue_turns_as_text)
    message = chats.get_by_role("textbox", name="Message to both")
    with holding(chats, "**/api/runs/*/steering", _continue_turns_as_text):
        chats.goto(f"/chat?run=demo-l3-k16&{CHAT}")
        message.fill("And then?")
        message.press("Enter")
        expect(chats.get_by_text("sent after both answers")).to_be_visible()
    for arm in ARMS:
        expect(pane(chats, arm).get_by_role("listitem")).to_have_count(3)
    expect(message).to_have_value("")
    chats.goto(f"/chat?run=demo-l3-k16&{CHAT}")
    chats.get_by_role("link", name="Strength", exact=True).click()
    expect(chats.get_by_text("with the chat template")).to_contain_text("The little girl")
    chats.get_by_role("button", name="Use as plain text").click()
    expect(chats.get_by_role("textbox", name="Prompt", exact=True)).to_have_value("The little girl")
    expect(chats).not_to_have_url(re.compile("turns="))
    expect(chats.get_by_role("region", name="Strength sweep").get_by_role("row")).to_have_count(8)


@pytest.mark.parametrize(("first", "second"), [("steering", "Prompt"), ("circuits", "Steer")])
def test_a_typed_prompt_follows_before_it_is_submitted(page: Page, first: str, second: str) -> None:
    page.goto(f"/{first}?run=demo-l3-k16")
    page.get_by_role("textbox", name="Prompt", exact=True).fill(PROMPT)
    page.get_by_role("navigation", name="Places").get_by_role("link", name=second).click()
    expect(page.get_by_role("textbox", name="Prompt", exact=True)).to_have_value(PROMPT)


def test_a_session_is_saved_shared_opened_and_deleted(page: Page, open_page: OpenPage, site: Site) -> None:
    save = page.get_by_role("button", name="Save session")
    with holding(page, "**/api/runs/*/steering"):
        page.goto(address(f"{ANSWERING}:add:4@first:9", 12) + "&seed=5&temperature=1.1")
        expect(save).to_be_disabled()
    written = texts(page)
    save.click()
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
    # The session has been read, so that its page leads on at once.
    link.click()
    expect(page).to_have_url(re.compile(r"/steering\?.*session="))
    other = open_page()
    other.goto(short)
    expect(other).to_have_url(re.compile(r"/steering\?.*session="))
    # Both texts are there, with their shades, without being generated.
    for arm, text in zip(ARMS, written, strict=True):
        assert other.get_by_role("group", name=f"{arm} text").inner_text() == text
    banner = other.get_by_role("status").filter(has_text="Session")
    expect(banner).to_contain_text("texts as saved")
    hover(other.get_by_role("group", name="Steered text").locator("[data-token]").first)
    expect(other.get_by_role("tooltip")).to_contain_text("Δ log p by the edits")
    other.get_by_role("button", name="Generate", exact=True).click()
    assert texts(other) == written, "they are written again on request"
    expect(card(other, ANSWERING)).to_contain_text("first 9 tokens")
    expect(banner).to_contain_text("as saved")
    card(other, ANSWERING).get_by_role("slider").press("ArrowLeft")
    expect(banner).to_contain_text("changed")
    expect(banner.get_by_role("button", name="Save as a new session")).to_be_visible()
    banner.get_by_role("button", name="Back to the saved one").click()
    expect(banner).to_contain_text("as saved")
    expect(card(other, ANSWERING).get_by_role("slider")).to_have_value("4")
    assert texts(other) == written
    other.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }")
    other.get_by_role("button", name="Copy link").click()
    expect(other.get_by_role("textbox", name="Text to copy")).to_have_value(re.compile(f"session={short[3:]}$"))
    other.keyboard.press("Escape")
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
    saved = page.request.post(f"/api/runs/{site.run}/sessions", data={"name": "Empty", "steering": {"prompt": ""}})
    page.goto(f"/steering?run={site.run}&session={saved.json()['id']}")  # has nothing to load
    expect(page.get_by_role("status").filter(has_text="Session")).to_contain_text("Empty")


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
    expect(row.get_by_role("cell").nth(1)).to_contain_text(re.compile(r"% \(random expert"))
    measure = sweep.get_by_role("button", name="Measure side effects of 6 strengths")
    measure.click()
    first = sweep.get_by_role("row").nth(2).get_by_role("cell").last
    figures = r"KL\s[\d.]+\s±\s[\d.]+\s×\srandom, ability\s[+−]?[\d.]+\s±\s[\d.]+\spoints"
    expect(first).to_contain_text(re.compile(figures), timeout=90_000)
    sweep.get_by_role("button", name="Stop").click()
    expect(sweep.get_by_role("button", name="Measure side effects of 5 strengths")).to_be_visible()
    expect(sweep.get_by_role("row").nth(1).get_by_role("cell")).to_have_count(5)  # without an effect, no side effects
    cells = [row.get_by_role("rowheader").get_by_role("button"), row.get_by_role("cell").first]
    tops = [box["y"] for cell in cells if (box := cell.bounding_box()) is not None]
    assert len(tops) == 2 and abs(tops[0] - tops[1]) < 2, "a strength is beside the first line of its text"
    steered = row.get_by_role("cell").first.inner_text()
    sweep.get_by_role("radio", name="Control").click()
    expect(row.get_by_role("cell").first).not_to_have_text(steered)
    row.get_by_role("rowheader").get_by_role("button").click()
    expect(page).to_have_url(re.compile(rf"edits={ANSWERING}(:|%3A)add(:|%3A)2\b"))
    found = "No strength suits" not in sweep.get_by_role("status").inner_text()
    expect(sweep.get_by_role("link", name="Steer with")).to_have_count(int(found))
    page.get_by_role("link", name="Text", exact=True).click()
    expect(page).to_have_url(re.compile(rf"/steering\?.*edits={ANSWERING}(:|%3A)add(:|%3A)2\b"))
    texts(page)


def test_experts_of_two_layers_are_edited_together_at_clicked_tokens(page: Page) -> None:
    page.goto(f"/steering?run=demo-l3-k16&prompt={quote(PROMPT)}&tokens=12&scope=chosen")
    edits = page.get_by_role("region", name="Edits")
    edits.get_by_role("combobox", name="Experts of").select_option("second")
    edits.get_by_role("textbox", name="Add an expert").focus()
    edits.get_by_role("combobox", name="Add an expert").fill("3")
    page.get_by_role("option").first.click()
    expect(card(page, 3)).to_contain_text("second")
    expect(page).to_have_url(re.compile(r"edits=second(/|%2F)3(:|%3A)add"))
    number = card(page, 3).get_by_role("textbox", name="Strength of expert 3")
    number.fill("1000")
    number.press("Enter")
    expect(page.get_by_role("code")).to_contain_text("--edit second/3:add:1000")
    default, steered = texts(page)
    assert steered == default, "no token is chosen yet"
    page.get_by_text("Scope of edits", exact=True).click()
    tokens = page.get_by_role("group", name="Prompt tokens to edit")
    tokens.get_by_role("button", name="said").click()
    expect(page).to_have_url(re.compile(r"[?&]at=4\b"))
    wait_for(lambda: len(set(texts(page))) == 2)
    expect(page.get_by_role("code")).to_contain_text("--positions 4")


def test_an_expert_is_shared_as_an_offline_page_and_as_a_picture(page: Page, browser: Browser, tmp_path: Path) -> None:
    page.goto(f"/experts/{ANSWERING}?run={RUN}")
    shared, saved = downloaded(page, "Share", "HTML page"), tmp_path / f"{RUN}-expert-{ANSWERING}.html"
    assert shared.suggested_filename == saved.name
    shared.save_as(saved)
    offline = browser.new_context(offline=True).new_page()
    offline.goto(saved.as_uri())
    hover(offline.locator("[data-tip]").first)
    assert RUN in offline.locator("footer").inner_text()
    offline.context.close()
    picture = downloaded(page, "Share", "PNG card").path().read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (1200, 630)
    assert len(picture) > 10_000  # not blank
