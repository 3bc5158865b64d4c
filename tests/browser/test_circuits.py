"""Circuits: a prompt becomes a graph that is checked, pruned, pinned, ablated, saved, and taken to Steering."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.axe import violations
from tests.browser.conftest import OpenPage
from tests.browser.test_overlays import THEMES

pytestmark = pytest.mark.browser

PROMPT = "Once upon a time there was a little"
ADDRESS = "/circuits?run=demo-l3-k16"


def graph(page: Page) -> Locator:
    """The graph, whose nodes are buttons."""
    return page.get_by_role("group", name="Circuit")


def experts(page: Page) -> Locator:
    """Its experts."""
    return graph(page).get_by_role("button", name=re.compile(r"^Expert \d+"))


@pytest.fixture
def circuits(page: Page) -> Page:
    """The graph of a prompt that was typed."""
    page.goto(ADDRESS)
    expect(page.get_by_role("heading", name="Type a prompt to trace")).to_be_visible()
    page.get_by_role("textbox", name="Prompt").fill(PROMPT)
    page.keyboard.press("Control+Enter")
    expect(graph(page)).to_be_visible(timeout=60_000)  # the language model is loaded on first use
    return page


def selected(page: Page) -> Locator:
    """The side panel's part about the selected node."""
    return page.get_by_role("region", name="Selected node")


def select(page: Page, node: Locator) -> str:
    """Click a node and wait for its details. Returns its heading."""
    heading = (node.get_attribute("aria-label") or "").split(", “")[0].split(",")[0]
    node.click()
    expect(selected(page).get_by_role("heading", name=re.compile(f"^{heading},"))).to_be_visible()
    return heading


def pin(page: Page, node: Locator) -> None:
    """Select a node and pin it."""
    select(page, node)
    selected(page).get_by_role("button", name="Pin", exact=True).click()
    expect(selected(page).get_by_role("button", name="Pinned")).to_have_attribute("aria-pressed", "true")


def test_predicted_effects_are_verified_automatically(circuits: Page) -> None:
    verdict = circuits.get_by_role("status").filter(has_text="ablated one at a time.")
    expect(verdict).to_have_text(re.compile(r"\d+\s% right\s*of its \d+ experts, ablated one at a time"))
    expect(verdict).to_contain_text("of the influence begins in neither tokens nor experts")
    nodes = circuits.get_by_role("region", name="Nodes of the circuit")
    expect(nodes.get_by_role("columnheader", name="Measured effect")).to_be_visible()
    assert violations(circuits) == []


def test_the_panel_shows_predicted_beside_measured_effects(circuits: Page) -> None:
    largest = selected(circuits).get_by_role(
        "table", name=re.compile(r"^Largest measured effects on the logit, of \d+")
    )
    largest.get_by_role("button").first.click()
    for row in ("Predicted by the graph", "Measured by ablation"):
        cells = selected(circuits).get_by_role("row", name=row).get_by_role("cell")
        expect(cells.last).to_have_text(re.compile(r"^([+−]\d|0)\S*$"))
    expect(selected(circuits)).to_contain_text(re.compile(r"The measured effect has the (predicted|opposite) sign"))


def test_the_whole_graph_fits_its_box(circuits: Page) -> None:
    box = circuits.locator(".circuit-box")
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 1


def test_checking_the_examples_ends_when_the_page_is_left(page: Page) -> None:
    page.route("**/api/circuits", lambda _: None)  # never answered
    with page.expect_request("**/api/circuits"):
        page.goto(ADDRESS)
    expect(page.get_by_role("status").filter(has_text="Checking example 1")).to_be_visible()
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/api/circuits")):
        page.get_by_role("button", name="Help and theme").click()
        page.get_by_role("link", name="Glossary").click()


def test_the_examples_are_listed_with_their_verdicts(page: Page) -> None:
    page.goto(ADDRESS)
    expect(page.get_by_role("status").filter(has_text="The examples were selected")).to_be_visible(timeout=60_000)
    expect(page.get_by_text(re.compile(r"r = −?\d|Could not be checked|needs at least")).first).to_be_visible()


def test_a_node_is_ablated_and_opened_in_steering(circuits: Page) -> None:
    expect(circuits).to_have_url(re.compile(r"prompt=Once\+upon"))
    expect(graph(circuits).get_by_role("button", name=re.compile("^Next token"))).to_have_count(1)
    assert experts(circuits).count() > 1
    first = experts(circuits).first
    first.hover()
    expect(circuits.get_by_role("tooltip")).to_contain_text("Total effect on the logit")
    select(circuits, first)
    expect(first).to_have_attribute("aria-pressed", "true")
    expect(circuits).to_have_url(re.compile(r"node=3_\d+_\d+"))
    off = circuits.get_by_role("region", name="Ablation")
    expect(off).to_have_count(0)
    selected(circuits).get_by_role("button", name="Ablate").click()
    for row in ("Predicted by the graph", "Measured"):
        expect(off.get_by_role("row", name=row).get_by_role("cell")).to_have_text(re.compile(r"^([+−]\d|0)\S*$"))
    nodes = circuits.get_by_role("region", name="Nodes of the circuit")
    expect(nodes.get_by_role("checkbox", checked=True)).to_have_count(1)
    off.get_by_role("link", name="Open in Steering").click()
    expect(circuits).to_have_url(
        re.compile(r"/steering\?run=demo-l3-k16.*prompt=Once.*edits=\d+:ablate.*scope=chosen.*at=\d+")
    )


def test_sliders_prune_the_graph(circuits: Page) -> None:
    buttons = graph(circuits).get_by_role("button")
    count = buttons.count()
    circuits.get_by_role("slider", name="Nodes, share of the influence").press("Home")
    expect(circuits).to_have_url(re.compile(r"[?&]prune=10\b"))
    expect(buttons.nth(count - 1)).to_have_count(0)
    assert 1 < buttons.count() < count
    expect(circuits.get_by_text(re.compile(r"The circuit draws \d of [\d,]+ nodes\."))).to_be_visible()
    circuits.get_by_role("slider", name="Edges, share of the influence").press("Home")
    expect(circuits).to_have_url(re.compile(r"[?&]edges=10\b"))
    width = graph(circuits).bounding_box()
    circuits.get_by_role("button", name="Zoom in").click()
    expect(circuits).to_have_url(re.compile(r"[?&]zoom=125\b"))
    expect(circuits.locator(".cnode.target")).to_be_in_viewport()
    zoomed = graph(circuits).bounding_box()
    assert width is not None and zoomed is not None and zoomed["width"] > width["width"]


def test_two_clicks_before_a_repaint_zoom_two_steps(circuits: Page) -> None:
    circuits.get_by_role("button", name="Zoom in").evaluate("button => { button.click(); button.click(); }")
    expect(circuits).to_have_url(re.compile(r"[?&]zoom=150\b"))


def test_zooming_keeps_the_selected_node_in_sight(circuits: Page) -> None:
    circuits.set_viewport_size({"width": 1000, "height": 560})
    lowest = graph(circuits).get_by_role("button").last
    lowest.scroll_into_view_if_needed()
    lowest.click()
    selected = circuits.locator(".cnode.selected")
    for zoom in (125, 150, 200):
        circuits.get_by_role("button", name="Zoom in").dispatch_event("click")
        expect(circuits).to_have_url(re.compile(rf"[?&]zoom={zoom}\b"))
    expect(selected).to_be_in_viewport(ratio=1)


def figures_of(page: Page) -> list[str]:
    """The verdict, the coverage and the logit attribution."""
    parts = (".circuit-verdict", ".circuit-coverage", ".logit-attribution table")
    return [page.locator(part).last.inner_text() for part in parts]


def names_in(drawn: Locator) -> list[str]:
    """Names of the drawn nodes. Experts without a label have none: their top tokens are not in the file."""
    names = [button.get_attribute("aria-label") or "" for button in drawn.get_by_role("button").all()]
    return [re.sub(r", (Expert \d+|(\d+,? )?(fires )?on “[^”]*”),", ",", name) for name in names]


def test_a_supernode_of_pinned_nodes_survives_saving_and_loading(circuits: Page, tmp_path: Path) -> None:
    for place in range(2):
        pin(circuits, experts(circuits).nth(place))
    pins = circuits.get_by_role("region", name="Pinned nodes")
    for box in pins.get_by_role("checkbox").all():
        box.check()
    pins.get_by_role("textbox", name="Name of the supernode").fill("little, ~girl")
    pins.get_by_role("button", name="Group").click()
    supernode = graph(circuits).get_by_role("button", name="Supernode little, ~girl, 2 nodes")
    expect(supernode).to_be_visible()
    expect(circuits.get_by_role("columnheader", name="Measured effect")).to_be_visible()
    circuits.wait_for_load_state("networkidle")  # labels arrive after the graph
    names = names_in(graph(circuits))
    figures = figures_of(circuits)
    with circuits.expect_download() as download:
        circuits.get_by_role("button", name="Save graph").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert [group[0] for group in json.loads(path.read_text("utf-8"))["qParams"]["supernodes"]] == ["little, ~girl"]
    circuits.goto(ADDRESS)
    with circuits.expect_file_chooser() as chooser:
        circuits.get_by_role("button", name="Open graph").click()
    chooser.value.set_files(path)
    expect(circuits.get_by_role("status").filter(has_text=path.name)).to_be_visible()
    expect(supernode).to_be_visible()
    assert names_in(graph(circuits)) == names
    assert figures_of(circuits) == figures
    expect(circuits.get_by_role("status").filter(has_text="ablated one at a time.")).to_be_visible()
    assert violations(circuits) == []
    circuits.get_by_role("button", name="Trace this prompt here").click()
    expect(circuits).to_have_url(re.compile(r"prompt=Once\+upon"))


def test_a_graph_is_saved_only_once_it_is_measured(page: Page) -> None:
    held: list[Route] = []
    page.route("**/api/circuits/effects", lambda route: held.append(route))
    with page.expect_request("**/api/circuits/effects"):
        page.goto(f"{ADDRESS}&prompt=Once+upon")
    save = page.get_by_role("button", name="Save graph")
    expect(save).to_be_disabled()
    expect(save).to_have_attribute("title", re.compile("Available once the experts have been ablated"))
    for route in held:
        route.continue_()
    expect(save).to_be_enabled()


def test_a_file_that_is_not_a_graph_shows_an_error(circuits: Page, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("[1]", "utf-8")
    with circuits.expect_file_chooser() as chooser:
        circuits.get_by_role("button", name="Open graph").click()
    chooser.value.set_files(tmp_path / "notes.json")
    expect(circuits.get_by_role("alert")).to_contain_text("notes.json is not a circuit graph. Open a .json file")


def test_another_target_is_selected_and_back_restores_the_first(circuits: Page) -> None:
    likely = circuits.get_by_role("group", name="Likely next tokens").get_by_role("button")
    expect(likely.first).to_have_attribute("aria-pressed", "true")
    likely.nth(1).click()
    expect(circuits).to_have_url(re.compile(r"[?&]target=\d+"))
    expect(likely.nth(1)).to_have_attribute("aria-pressed", "true")
    target = graph(circuits).get_by_role("button", name=re.compile("^Next token"))
    target.focus()
    circuits.keyboard.press("ArrowDown")
    expect(target).not_to_be_focused()
    expect(circuits.get_by_role("tooltip")).to_contain_text("Influence")
    circuits.get_by_role("radio", name="Edges").click()
    edges = circuits.get_by_role("region", name="Edges of the circuit")
    expect(edges.get_by_role("row").nth(1)).to_contain_text(re.compile(r"[+−]\d"))
    circuits.reload()
    expect(edges).to_be_visible()
    circuits.go_back()
    expect(likely.first).to_have_attribute("aria-pressed", "true")


def test_a_node_in_the_table_links_to_its_expert(circuits: Page) -> None:
    nodes = circuits.get_by_role("region", name="Nodes of the circuit")
    link = nodes.get_by_role("rowgroup").last.get_by_role("link").first
    wanted = (link.inner_text().split() or [""])[0]
    link.click()
    expect(circuits).to_have_url(re.compile(rf"/experts/{wanted}\?run=demo-l3-k16"))


def test_circuit_on_a_phone_is_accessible(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(f"{ADDRESS}&prompt={PROMPT.replace(' ', '+')}")
    expect(graph(page)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    verdict = page.locator(".circuit-verdict")
    expect(verdict.get_by_text("Direction", exact=True)).to_be_visible()
    box = verdict.bounding_box()
    assert box is not None and box["height"] < 110
    verdict.get_by_role("button", name="Details").tap()
    expect(verdict.get_by_text("ablated one at a time.")).to_be_visible()
    experts(page).first.tap()
    selected(page).get_by_role("button", name="Ablate").tap()
    expect(page.get_by_role("region", name="Ablation").get_by_role("rowheader", name="Measured")).to_be_visible()
    for scheme in THEMES:
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == [], scheme


def test_the_attention_of_an_edge_is_explained(circuits: Page) -> None:
    attention = circuits.get_by_role("region", name="Attention")
    attention.get_by_role("button", name=re.compile("^from ")).first.click()
    expect(attention.get_by_role("table")).to_be_visible(timeout=60_000)
    expect(attention.get_by_role("heading", name=re.compile("^Query at "))).to_be_visible()
    attention.get_by_role("button", name=re.compile(r"^Head \d+ of layer \d+$")).nth(1).click()
    expect(attention.get_by_role("heading", name=re.compile("^Key at "))).to_be_visible()
    attention.get_by_role("button", name=re.compile("^from ")).first.click()
    expect(attention.get_by_role("table")).to_have_count(0)
