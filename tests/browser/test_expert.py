"""One expert: examples in three ways, what hovering, locking and keys do, labels and notes that stay."""

import csv
import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.rest import hover, press, rest
from tests.browser.sample import ANSWERING, UNLABELLED

pytestmark = pytest.mark.browser

EXPERT = f"/experts/{ANSWERING}?run=demo-l3-k16"


@pytest.fixture
def expert(page: Page) -> Page:
    """The page of an expert with examples."""
    page.goto(EXPERT)
    rest(peak(page, 0))
    return page


def examples(page: Page) -> Locator:
    return page.get_by_role("region", name="Top examples").get_by_role("listitem")


def peak(page: Page, row: int) -> Locator:
    """The token that an example is stored for: the one the Tab key reaches."""
    return examples(page).nth(row).locator("[data-token][tabindex='0']")


def marker(page: Page) -> Locator:
    return page.get_by_role("figure").locator(".hist-mark")


def test_examples_have_three_views(expert: Page) -> None:
    places = [peak(expert, row).bounding_box() for row in range(5)]
    lefts = {round(place["x"]) for place in places if place is not None}
    assert max(lefts) - min(lefts) <= 1, "aligned on their peaks"
    whole = re.compile(r"sequence \d+, token \d+ of 128")
    for mode in ("Snippet", "Full", "Aligned"):
        way = expert.get_by_role("radio", name=mode)
        way.click()
        expect(way).to_be_checked()
        expect(examples(expert).first.get_by_text(whole)).to_have_count(1 if mode == "Full" else 0)
        address = re.compile(rf"[?&]view={mode.lower()}")
        if mode == "Aligned":
            expect(expert).not_to_have_url(re.compile("view="))
        else:
            expect(expert).to_have_url(address)
    expert.goto(f"{EXPERT}&view=full")
    expect(examples(expert).first.get_by_text(whole)).to_be_visible()
    examples(expert).first.get_by_role("link", name="Use in Routing").click()
    expect(expert.get_by_role("table", name="Activations, tokens by experts")).to_be_visible()


def test_an_example_expands_and_more_examples_load(expert: Page) -> None:
    row = examples(expert).first
    hover(row)
    row.get_by_role("button", name="Show the full example").click()
    expect(row.get_by_text("Use in Routing")).to_be_visible()
    before = examples(expert).count()
    expert.get_by_role("region", name="Top examples").get_by_role(
        "button", name=re.compile(r"^8 of \d+ stored$")
    ).click()
    expect(examples(expert).nth(before)).to_be_visible()


def test_hovering_a_token_marks_the_histogram_and_shows_a_tooltip(expert: Page) -> None:
    expect(marker(expert)).to_have_count(0)
    said = []
    for row in (0, 4):
        hover(peak(expert, row))
        tip = expert.get_by_role("tooltip")
        expect(tip).to_contain_text("Activation")
        expect(marker(expert)).to_be_visible()
        expect(marker(expert)).to_have_text(examples(expert).nth(row).locator(".v").inner_text())
        said.append(marker(expert).evaluate("mark => mark.style.left"))
    assert said[0] != said[1]
    expert.mouse.move(5, 5)
    expect(marker(expert)).to_have_count(0)
    expect(expert.get_by_role("tooltip")).to_have_count(0)


def test_a_label_and_a_note_persist_after_reloading(page: Page) -> None:
    page.goto(f"/experts/{UNLABELLED}?run=demo-l3-k16")
    expect(page.get_by_role("button", name="Add label")).to_be_visible()
    press(page, "l")
    box = page.get_by_role("textbox", name="Label")
    expect(box).to_be_focused()
    box.fill("Speakers")
    box.press("Enter")
    heading = page.get_by_role("heading", name="Speakers")
    expect(heading).to_be_visible()
    page.reload()
    expect(heading).to_be_visible()
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
    press(page, "n")
    box = page.get_by_role("textbox", name="Note")
    box.fill("Before somebody speaks.\nNot before code.")
    box.press("Control+Enter")
    # The editor holds the same words, until they have been saved.
    expect(box).to_have_count(0)
    expect(page.get_by_text("Not before code.")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Not before code.")).to_be_visible()
    page.get_by_role("button", name="Edit note").click()
    box.fill("")
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
    expect(row).to_be_visible()
    token = row.locator("[data-token][tabindex='0']").inner_text()
    row.get_by_role("link", name="Use in Steering").click()
    expect(page).to_have_url(re.compile(rf"/steering\?.*edits=40:ablate,{ANSWERING}:add:2"))
    (prompt,) = parse_qs(urlsplit(page.url).query)["prompt"]
    assert token in prompt
    cards = page.get_by_role("region", name="Edits").get_by_role("listitem")
    expect(cards).to_have_count(2)
    expect(cards.last).to_contain_text("answering a question")
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value(prompt)


@pytest.fixture
def every_strength(page: Page) -> Page:
    """The page of an expert with its weaker examples."""
    page.goto(f"{EXPERT}&all=1")
    rest(random_rows(page).first)
    return page


def random_rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Random sample").get_by_role("listitem")


def test_random_examples_show_their_seed_and_weighting(every_strength: Page) -> None:
    region = every_strength.get_by_role("region", name="Random sample")
    expect(region).to_contain_text(
        re.compile(r"Seed 0: a random sample weighted by bin, as if from all [\d,]+ activations")
    )
    first = random_rows(every_strength).all_inner_texts()
    region.get_by_role("button", name="Resample").click()
    expect(region).to_contain_text("Seed 1:")
    expect(every_strength).to_have_url(re.compile(r"[?&]seed=1\b"))
    rest(random_rows(every_strength).first)
    second = random_rows(every_strength).all_inner_texts()
    assert first != second
    every_strength.reload()
    expect(random_rows(every_strength)).to_have_text(second, use_inner_text=True)


def saved(page: Page, kind: str) -> str:
    page.get_by_role("button", name="More", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=kind).click()
    return download.value.path().read_text("utf-8")


def test_downloads_contain_the_displayed_examples(page: Page) -> None:
    page.goto(f"{EXPERT}&view=snippet&open=1&breaks=1&all=1")
    rows = page.locator(".group").get_by_role("listitem")
    rest(random_rows(page).first)
    shown = [(row.locator(".v").inner_text(), row.locator(".w").text_content() or "") for row in rows.all()]
    table = list(csv.DictReader(saved(page, "Examples, CSV").splitlines()))
    assert [f"{float(row['activation']):.2f}" for row in table] == [activation for activation, _ in shown]
    texts = [row["before"] + row["token"] + row["after"] for row in table]
    assert texts == [text.removeprefix("… ").removesuffix(" …") for _, text in shown]

    everything = json.loads(saved(page, "Everything shown, JSON"))
    assert everything["shown"] == {"view": "snippet", "breaks": True, "seed": 0}
    listed = [example for group in everything["groups"] for example in group["examples"]]
    assert [example["position"] for example in listed] == [int(row["position"]) for row in table]
    statistics = dict(list(csv.reader(saved(page, "Statistics, CSV").splitlines()))[1:])
    assert int(statistics["active tokens"]) == everything["row"]["active_tokens"]


def test_one_click_steers_with_the_expert_at_three_strengths(expert: Page) -> None:
    here = expert.get_by_role("region", name="Steer here")
    here.get_by_role("textbox", name="Prompt to steer").fill("the old fox")
    here.get_by_role("button", name="Steer", exact=True).click()
    texts = [here.get_by_role("region", name=name, exact=True) for name in ("Baseline", "+1", "+2", "+4")]
    for text in texts:
        expect(text).to_have_attribute("aria-busy", "false")
        expect(text.locator("[data-token]").first).to_be_visible()
    expect(expert).to_have_url(re.compile(r"steer=the\+old\+fox"))
    tops = [(text.bounding_box() or {"y": 0})["y"] for text in texts]
    assert tops == sorted(tops), "below one another"
    assert tops[-1] - tops[0] < 300, "so low that examples stay on the first screen"
    texts[-1].get_by_role("link", name="Open in Steer").click()
    expect(expert.get_by_role("textbox", name="Prompt")).to_have_value("the old fox")


def test_one_line_below_the_label_says_how_far_it_can_be_trusted(page: Page) -> None:
    page.goto(f"/experts/{UNLABELLED}?run=demo-l3-k16")
    trust = page.get_by_role("list", name="Reliability").get_by_role("listitem")
    expect(trust).to_have_text([re.compile("^Effect (above|no more than) a random expert’s$")])
    page.goto(EXPERT)
    expect(trust.first).to_have_text("User label, not tested")


def test_an_expert_is_measured_on_request_with_progress(page: Page) -> None:
    page.goto(f"/experts/{UNLABELLED}?run=demo-l3-k16")
    writes = page.get_by_role("region", name="Writes")
    expect(writes.get_by_text(re.compile(r"on \d+ of its strongest examples"))).to_be_visible()
    writes.get_by_role("button", name="Measure this expert").click()
    expect(writes.get_by_text(re.compile(r"mean over \d+ examples of all strengths"))).to_be_visible()
