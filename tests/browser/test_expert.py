"""One expert: examples in three ways, what hovering, locking and keys do, labels and notes that stay."""

import csv
import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ANSWERING, UNLABELLED
from tests.browser.rest import COLOURS, downloaded, expect_accessible, holding, hover, press, rest, violations

pytestmark = pytest.mark.browser

EXPERT = f"/experts/{ANSWERING}?run=demo-l3-k16"


@pytest.fixture
def expert(page: Page) -> Page:
    """The page of an expert with examples."""
    page.goto(f"{EXPERT}&details=1")
    rest(peak(page, 0))
    return page


def examples(page: Page) -> Locator:
    return page.get_by_role("region", name="Top examples").get_by_role("listitem")


def peak(page: Page, row: int) -> Locator:
    """The token that an example is stored for: the one the Tab key reaches."""
    return examples(page).nth(row).locator("[data-token][tabindex='0']")


def marker(page: Page) -> Locator:
    return page.get_by_role("figure").locator(".hist-mark")


def test_examples_have_three_views_expand_and_mark_the_histogram(expert: Page) -> None:
    places = [peak(expert, row).bounding_box() for row in range(4)]
    lefts = {round(place["x"]) for place in places if place is not None}
    assert max(lefts) - min(lefts) <= 1, "aligned on their peaks"
    expect(marker(expert)).to_have_count(0)
    said, tip = [], expert.get_by_role("tooltip")
    for row in (0, 3):
        hover(peak(expert, row))
        expect(tip).to_contain_text("Activation")
        expect(marker(expert)).to_have_text(examples(expert).nth(row).locator(".v").inner_text())
        said.append(marker(expert).evaluate("mark => mark.style.left"))
    assert said[0] != said[1]
    expect_accessible(tip)
    expert.mouse.move(5, 5)
    expect(marker(expert)).to_have_count(0)
    expect(tip).to_have_count(0)
    first, before = examples(expert).first, examples(expert).count()
    hover(first)
    first.get_by_role("button", name="Show the full example").click()
    expect(first.get_by_text("Use in Routing")).to_be_visible()
    more = expert.get_by_role("region", name="Top examples").get_by_role(
        "button", name=re.compile(r"^4 of \d+ stored$")
    )
    more.click()
    expect(examples(expert).nth(before)).to_be_visible()
    other = examples(expert).nth(1)  # the first one stays open
    whole = other.get_by_text(re.compile(r"sequence \d+, token \d+ of 128"))
    for mode, is_whole, address in (("Snippet", 0, "view=snippet"), ("Full", 1, "view=full"), ("Aligned", 0, "$")):
        expert.get_by_role("radio", name=mode).click()
        expect(whole).to_have_count(is_whole)
        expect(expert).to_have_url(re.compile(address))
    expect(expert).not_to_have_url(re.compile("view="))
    expert.goto(f"{EXPERT}&view=full")
    expect(whole).to_be_visible()
    other.get_by_role("link", name="Use in Routing").click()
    expect(expert.get_by_role("table", name="Activations, tokens by experts")).to_be_visible()


def test_an_unlabelled_expert_is_measured_and_its_label_and_note_persist(page: Page) -> None:
    page.goto(f"/experts/{UNLABELLED}?run=demo-l3-k16")
    trust = page.get_by_role("list", name="Reliability").get_by_role("listitem")
    expect(trust).to_have_text(
        [re.compile(r"^Fires on \d indexed tokens, 0\.\d+ %: too few to say what it responds to$")]
    )
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("^“.+” tokens$"))
    writes = page.get_by_role("region", name="Writes")
    expect(writes.get_by_text(re.compile(r"[Oo]n \d+ of its strongest examples"))).to_be_visible()
    writes.get_by_role("button", name="Measure this expert").click()
    expect(writes.get_by_text(re.compile(r"mean over \d+ examples of all strengths"))).to_be_visible()
    expect(page.get_by_role("button", name="Add label")).to_be_visible()
    press(page, "l")
    box = page.get_by_role("textbox", name="Label")
    expect(box).to_be_focused()
    expect_accessible(box)
    box.fill("Speakers")
    box.press("Enter")
    heading = page.get_by_role("heading", name="Speakers")
    expect(heading).to_be_visible()
    press(page, "n")
    note = page.get_by_role("textbox", name="Note")
    note.fill("Before somebody speaks.\nNot before code.")
    note.press("Control+Enter")
    # The editor holds the same words, until they have been saved.
    expect(note).to_have_count(0)
    with holding(page, "**/writes"):
        page.reload()
        expect(heading).to_be_visible()
        expect(writes.get_by_text("comparing with random experts")).to_be_visible()
        colour = "bar => getComputedStyle(bar).backgroundColor"
        bars = [writes.locator(f".{side} .bar-mark").first for side in ("up", "down")]
        assert len({bar.evaluate(colour) for bar in bars}) == 1, "no colour before the comparison"
    expect(trust.first).to_have_text("User label, not tested on where it fires")
    expect(page.get_by_text("Not before code.")).to_be_visible()
    page.get_by_role("button", name="Edit label").click()
    expect(box).to_be_focused()
    page.keyboard.type("Something else")
    expect(box).to_have_value("Something else")
    box.press("Escape")
    expect(heading).to_be_visible()
    page.get_by_role("button", name="Edit label").click()
    box.fill("")
    box.press("Enter")
    expect(page.get_by_role("button", name="Add label")).to_be_visible()
    page.get_by_role("button", name="Edit note").click()
    note.fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Add note")).to_be_visible()


def test_keys_open_neighbours_and_the_tray_which_is_kept_on_the_steering_page(expert: Page) -> None:
    expert.keyboard.press("j")
    expect(expert).not_to_have_url(re.compile(f"/experts/{ANSWERING}"))
    expect(expert.get_by_role("button", name="Previous expert")).to_have_text(re.compile(str(ANSWERING)))
    expert.keyboard.press("k")
    expect(expert).to_have_url(re.compile(f"/experts/{ANSWERING}"))
    rest(peak(expert, 0))
    tray = expert.get_by_role("complementary", name="Tray")
    expect(tray).to_contain_text("Tray0")
    expert.keyboard.press("a")
    expect(expert.get_by_role("button", name="In tray")).to_have_attribute("aria-pressed", "true")
    expect(tray).to_contain_text(re.compile(rf"{ANSWERING}[×+]\d"))
    expert.keyboard.press("t")
    expect(expert).to_have_url(re.compile(rf"/steering\?.*edits={ANSWERING}"))
    card = expert.get_by_role("region", name="Edits").get_by_role("listitem").first
    expect(card).to_contain_text("answering a question")
    slider = card.get_by_role("slider", name=f"Strength of expert {ANSWERING}")
    strength = slider.input_value()
    expert.reload()
    expect(slider).to_have_value(strength)
    card.get_by_role("button", name=f"Remove expert {ANSWERING} from the tray").click()
    expect(expert.get_by_text("The tray is empty.")).to_be_visible()
    expect(expert).not_to_have_url(re.compile("edits="))


def test_use_in_steering_fills_the_prompt_and_keeps_other_edits(page: Page) -> None:
    page.goto(f"{EXPERT}&view=full&edits=40:ablate")
    row = examples(page).first
    token = peak(page, 0).inner_text()
    row.get_by_role("link", name="Use in Steering").click()
    expect(page).to_have_url(re.compile(rf"/steering\?.*edits=40:ablate,{ANSWERING}:add:2"))
    (prompt,) = parse_qs(urlsplit(page.url).query)["prompt"]
    assert token in prompt
    cards = page.get_by_role("region", name="Edits").get_by_role("listitem")
    expect(cards).to_have_count(2)
    expect(cards.last).to_contain_text("answering a question")
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value(prompt)


def random_rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Random sample").get_by_role("listitem")


def test_random_examples_show_their_seed_and_weighting(page: Page) -> None:
    page.goto(f"{EXPERT}&all=1")
    region = page.get_by_role("region", name="Random sample")
    rest(random_rows(page).first)
    expect(region).to_contain_text(re.compile(r"Seed 0: each draw picks a bin by its share of all [\d,]+ activations"))
    first = random_rows(page).all_inner_texts()
    region.get_by_role("button", name="Resample").click()
    expect(region).to_contain_text("Seed 1:")
    expect(page).to_have_url(re.compile(r"[?&]seed=1\b"))
    rest(random_rows(page).first)
    second = random_rows(page).all_inner_texts()
    assert first != second
    page.reload()
    expect(random_rows(page)).to_have_text(second, use_inner_text=True)


def test_downloads_contain_the_displayed_examples(page: Page) -> None:
    def saved(kind: str) -> str:
        return downloaded(page, "More", kind).path().read_text("utf-8")

    page.goto(f"{EXPERT}&view=snippet&open=1&breaks=1&all=1")
    rest(random_rows(page).first)
    rows = page.locator(".group").get_by_role("listitem").all()
    shown = [(row.locator(".v").inner_text(), row.locator(".w").text_content() or "") for row in rows]
    table = list(csv.DictReader(saved("Examples, CSV").splitlines()))
    assert [f"{float(row['activation']):.2f}" for row in table] == [activation for activation, _ in shown]
    texts = [row["before"] + row["token"] + row["after"] for row in table]
    assert texts == [text.removeprefix("… ").removesuffix(" …") for _, text in shown]
    everything = json.loads(saved("Everything shown, JSON"))
    assert everything["shown"] == {"view": "snippet", "breaks": True, "seed": 0}
    listed = [example for group in everything["groups"] for example in group["examples"]]
    assert [example["position"] for example in listed] == [int(row["position"]) for row in table]
    (statistics,) = csv.DictReader(saved("Statistics, CSV").splitlines())
    row = everything["row"]
    assert [int(statistics[name]) for name in ("expert", "active_tokens")] == [row["expert"], row["active_tokens"]]
    assert float(statistics["histogram_high"]) == row["histogram_high"]
    page.get_by_role("button", name="More", exact=True).click()
    expect_accessible(page.get_by_role("menuitem", name="Statistics, CSV"))


def test_what_is_said_before_the_steered_texts_can_be_read(page: Page) -> None:
    with holding(page, "**/steering"):
        page.goto(EXPERT)
        expect(page.get_by_role("region", name="Baseline")).to_have_attribute("aria-busy", "true")
        assert violations(page, COLOURS) == []


def test_texts_steered_at_three_strengths_are_beside_those_of_a_random_expert(expert: Page) -> None:
    here = expert.get_by_role("region", name="Steer here")
    expect(here.get_by_role("status")).to_contain_text("random expert", use_inner_text=True)  # without a click
    here.get_by_role("textbox", name="Prompt to steer").fill("the old fox")
    here.get_by_role("button", name="Steer", exact=True).click()
    texts = [here.get_by_role("region", name=name, exact=True) for name in ("Baseline", "+1", "+2", "+3", "Random")]
    for text in texts:
        expect(text).to_have_attribute("aria-busy", "false")
        expect(text.locator("[data-token]").first).to_be_visible()
    expect(expert).to_have_url(re.compile(r"steer=the\+old\+fox"))
    assert len({round((text.bounding_box() or {"height": 0})["height"]) for text in texts}) == 1, "one line each"
    tops = [(text.bounding_box() or {"y": 0})["y"] for text in texts]
    assert tops == sorted(tops), "below one another"
    assert tops[-1] - tops[0] < 300, "so low that examples stay on the first screen"
    texts[-1].get_by_role("link", name="Open in Steer").click()
    expect(expert.get_by_role("textbox", name="Prompt")).to_have_value("the old fox")
