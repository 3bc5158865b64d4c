"""Two prompts, layers, pasted texts, kinds and runs side by side; evaluations, the benchmark, progress of training."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from mxd.backend.database.engine import opened
from mxd.trainer.config.analysis import BENCHMARK_FOLDER
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import remove_run
from tests.browser.conftest import RUN, OpenPage, Site
from tests.browser.rest import downloaded, hover, press, settle, violations
from tests.browser.test_pages import check_looks
from tests.browser.test_routing import PROMPT, heat_map
from tests.helpers.databases import DATASETS, permuted_copy, write_benchmark
from tests.helpers.processes import ended, start, wait_for

pytestmark = pytest.mark.browser

OTHER = "The little boy said that she was hungry."


def difference(page: Page) -> Locator:
    """Differences between two texts."""
    return page.get_by_role("region", name="Difference between the two routings")


def test_comparing_two_prompts_shows_their_difference(page: Page) -> None:
    page.goto(f"/routing?run=demo-l3-k16&prompt={quote(PROMPT)}")
    expect(heat_map(page)).to_be_visible()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_role("textbox", name="Second prompt").fill(OTHER)
    expect(difference(page)).to_contain_text(
        re.compile(
            r"girl → boy: (with a label that is not weak: )?(less|more) .*"
            r"\d+ % of the activation differs.*\d+ experts that differ",
            re.DOTALL,
        )
    )
    expect(page).to_have_url(re.compile(r"second=The\+little\+boy"))
    table = page.get_by_role("table", name="Differences, tokens by experts")
    heads = table.get_by_role("columnheader").all_inner_texts()
    assert heads[-1].split() == ["Score", "↓"]
    assert heads[1].split()[:2] == ["girl", "boy"]  # nothing before the first token that differs can differ
    expect(difference(page)).to_contain_text("The first 2 tokens are the same in both")
    page.get_by_role("radio", name="Whole texts").click()
    expect(table.get_by_role("columnheader").nth(2)).to_have_text("First text, sum")  # the table follows the choice
    assert table.get_by_role("columnheader").all_inner_texts()[2:5] == ["First text, sum", "Second text, sum", "Change"]
    changes = table.get_by_role("row").nth(1).get_by_role("cell").nth(-2)
    expect(changes).to_have_text(re.compile(r"^[+−]\d"))
    page.reload()
    expect(changes).to_be_visible()
    page.get_by_role("link", name="Tokens", exact=True).click()
    expect(heat_map(page)).to_be_visible()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.get_by_role("textbox", name="Second prompt")).to_have_value(OTHER)
    expect(difference(page)).to_be_visible()


def test_all_layers_are_shown_and_left_out_by_their_chips(page: Page, forgiven: list[str]) -> None:
    forgiven.append("404")  # the other layer's run has no index, so its experts have no page
    page.goto(f"/routing?run=demo-l3-k16&prompt={quote(PROMPT)}")
    expect(heat_map(page)).to_be_visible()
    page.get_by_role("link", name="Layers", exact=True).click()
    trace = page.get_by_role("table", name="Strongest expert, layers by tokens")
    rows = [re.compile("^Next token$"), re.compile("^with 2 layers$"), re.compile("^Layer 3"), re.compile("^Layer 1")]
    expect(trace.get_by_role("rowheader")).to_have_text(rows)
    layers = page.get_by_role("group", name="Layers")
    expect(layers.get_by_role("button", name="Layer 3")).to_be_disabled()
    layers.get_by_role("button", name="Layer 1").click()
    expect(page).to_have_url(re.compile("layers=none"))
    expect(trace.get_by_role("rowheader", name="Layer 1")).to_have_count(0)
    layers.get_by_role("button", name="Layer 1").click()
    expect(page).to_have_url(re.compile("layers=second"))
    # The page opens on the last token, and says what its experts do to the next one.
    panel = page.get_by_role("complementary", name="Effects on the next token")
    raised = re.compile(
        r"Next token .+: \d.* %, with 2 layers spliced in \d.* %\."
        r".*(Most (for|against) its logit|None of the \d+ experts) on "
    )
    finding = page.get_by_role("status").filter(has_text=raised)
    expect(finding).to_contain_text(re.compile(r" on ␣?\.(:| )"))
    for layer in ("Layer 3", "Layer 1"):
        effects = panel.get_by_role("region", name=layer).get_by_role("listitem").locator("b").all_inner_texts()
        sizes = [float(effect.replace("−", "-")) for effect in effects]
        assert len(sizes) == 3
        assert sizes == sorted(sizes, key=abs, reverse=True)
    expect(trace.get_by_role("button", name="effect on the next token")).to_have_count(2)
    trace.get_by_role("columnheader", name="girl").get_by_role("button").click()
    expect(panel.get_by_role("heading", name="␣girl →")).to_be_visible()
    expect(finding).to_contain_text("on ␣girl")
    expect(page).to_have_url(re.compile(r"[?&]lock=3\b"))
    settle(page)
    assert violations(page) == []
    plus = panel.get_by_role("region", name="Layer 1").get_by_role("button").first
    plus.click()
    expect(plus).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("complementary", name="Tray")).to_contain_text(re.compile(r"second/\d+"))
    cell = trace.get_by_role("row", name="Layer 1").get_by_role("button").nth(2)
    tip = page.get_by_role("tooltip")
    # Below the table, where it covers no cell, or at its own cell, to which alone an arrow points.
    page.set_viewport_size({"width": 1280, "height": 1200})
    hover(trace.get_by_role("row", name="Layer 3").get_by_role("button").nth(2))
    expect(tip.locator(".tip-arrow")).to_have_count(0)
    page.set_viewport_size({"width": 1280, "height": 720})
    hover(cell)
    expect(tip.locator(".tip-arrow")).to_have_count(1)
    expect(tip).to_contain_text(re.compile(r"Rank on this token.*Writes.*[+−]0\.", re.DOTALL))
    cell.click()
    feeds = re.compile(r"raises|lowers|changes no cell")
    expect(page.get_by_role("status").filter(has_text=feeds)).to_be_visible()
    # A marked cell keeps its activation and its expert's number beside the change.
    marked = trace.locator("[data-fed]").all_text_contents()
    assert all(re.search(r"\d\.\d\d+[+−][\d.]+\u202f%$", text) for text in marked), marked
    expect(page).to_have_url(re.compile(r"of=second"))
    page.mouse.move(0, 0)  # the first Escape would close the tooltip
    expect(tip).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile(r"of=second"))
    panel.get_by_role("region", name="Layer 1").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+\?run=second"))
    expect(page.get_by_role("alert")).to_contain_text("mxd index second")


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
    assert downloaded(page, "Export", "CSV").suggested_filename.endswith(".csv")
    table.locator("tbody").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/experts/\d+"))


def test_two_kinds_are_chosen_on_opening(page: Page) -> None:
    kinds = [{"kind": kind, "documents": count, "characters": 9000} for kind, count in (("story", 40), ("code", 1))]
    options = {"run": "", "layers": [], "chat": False, "no_chat": "", "kinds": {"text": "text.jsonl", "kinds": kinds}}
    page.route("**/options?kinds=true", lambda route: route.fulfill(json=options))
    started: list[int] = []

    def refuse(route: Route) -> None:
        started.append((route.request.post_data_json or {})["tokens"])
        error = {"event": "error", "error": {"code": "failed", "message": "No model."}}
        route.fulfill(content_type="text/event-stream", body=f"data: {json.dumps(error)}\n\n")

    page.route("**/api/runs/*/contrast", refuse)
    page.goto("/contrast")
    for side, kind, shown in (("A", "story", "story (40 documents)"), ("B", "code", "code (1 document)")):
        source = page.get_by_role("combobox", name=f"Source of text {side}")
        expect(source).to_have_value(kind)
        expect(source.get_by_role("option", name=shown, exact=True)).to_have_count(1)
    start, tokens = page.get_by_role("button", name="Compare"), page.get_by_role("textbox", name="Tokens per text")
    expect(start).to_be_enabled()
    press(page, "Control+Enter")
    expect(page.get_by_role("alert")).to_have_text("No model.")
    tokens.fill("512")
    with page.expect_response("**/contrast"):
        start.click()
    assert started == [8192, 512]
    source.select_option("story")
    expect(page.get_by_text("Choose two different kinds.")).to_be_visible()
    source.select_option("Own text")
    expect(page.get_by_role("textbox", name="Documents of text B")).to_be_visible()


COPY = "shuffled-copy-of-that-run"
ORDER = np.random.default_rng(0).permutation(4096).tolist()


@pytest.fixture
def shuffled(site: Site) -> Iterator[None]:
    """The sample's run once more, with its experts in another order."""
    with opened(site.database) as database:
        permuted_copy(Run.load(site.run, site.data), COPY, ORDER, database)
        yield
        remove_run(COPY, site.data, database)


OVERLAPS = """table => {
  const texts = [...table.querySelectorAll("th")].map(head => {
    const range = document.createRange();
    range.selectNodeContents(head);
    return [head.textContent, range.getBoundingClientRect()];
  }).filter(([, box]) => box.width > 1);
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).flatMap(([other, b]) =>
    Math.min(a.right, b.right) > Math.max(a.left, b.left) && Math.min(a.bottom, b.bottom) > Math.max(a.top, b.top) + 1
      ? [`${one} / ${other}`] : []));
}"""
"""Heads of a table whose texts are printed over each other."""


@pytest.mark.usefixtures("shuffled")
def test_experts_of_a_shuffled_copy_are_matched(page: Page) -> None:
    page.goto("/runs")
    page.get_by_role("row", name=re.compile(f"^{RUN} ")).get_by_role("cell", name="MxD").click()
    expect(page).to_have_url(re.compile(f"/runs/{RUN}$"))
    page.go_back()
    page.get_by_role("link", name="Compare the runs of layer 3").click()
    expect(page).to_have_url(re.compile("/evaluate"))
    page.get_by_role("link", name="Compare", exact=True).click()
    # The other run of the same MLP is chosen without asking.
    expect(page.get_by_role("button", name="Compare with")).to_contain_text(COPY)
    expect(page.get_by_role("list", name="Similarity of the two runs")).to_contain_text("100.0 %")
    matched = page.get_by_role("region", name="Matched experts").get_by_role("table")
    pairs = matched.locator("tbody").get_by_role("row")
    expect(pairs.nth(4)).to_be_visible()
    for row in pairs.all()[:5]:
        expect(row).to_contain_text("1.00")
        one, other = map(int, row.locator("td.c-id").all_inner_texts())
        assert ORDER[other] == one
    for width in (820, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        wait_for(lambda: matched.evaluate(OVERLAPS) == [])
        expect(page.locator(".found[data-cut]")).to_have_count(0)
    check_looks(page, lambda _: pairs.nth(2))
    there = pairs.first.get_by_role("link").last
    there.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/experts/\d+\?run={COPY}"))
    expect(page.get_by_role("group", name="Example 1", exact=True).first).to_be_visible()


def test_former_addresses_open_their_part(page: Page) -> None:
    page.goto(f"/faithfulness?run={RUN}")
    expect(page).to_have_url(re.compile(rf"/evaluate\?run={RUN}#faithfulness$"))
    metrics = page.get_by_role("region", name="Faithfulness")
    for group in ("Next-token loss", "Routing", "Same greedy continuation"):
        expect(metrics.get_by_role("rowheader", name=group, exact=True)).to_be_visible()
    frontier = page.get_by_role("region", name="Points of the frontier")
    expect(frontier).to_be_visible()
    page.locator("summary").get_by_text("Faithfulness and frontier", exact=True).click()
    expect(page).not_to_have_url(re.compile("#"))
    expect(frontier).to_have_count(0)
    page.goto(f"/frontier?run={RUN}")
    expect(page).to_have_url(re.compile("#frontier$"))
    expect(frontier).to_be_visible()
    page.goto(f"/health?run={RUN}")
    health = page.get_by_role("region", name="Metrics of health")
    expect(health.get_by_role("row", name="Highest density")).to_be_visible()
    page.goto(f"/faithfulness?run={RUN}")
    metrics.get_by_role("link", name="Variance explained").click()
    expect(page).to_have_url(re.compile(r"/glossary\?.*#variance_explained$"))
    page.goto(f"/routing?run={RUN}&prompt=One&against=Two")
    expect(page).to_have_url(re.compile(rf"/texts\?run={RUN}&prompt=One&second=Two$"))
    page.goto(f"/routing?run={RUN}&layers=")
    expect(page).to_have_url(re.compile(r"/layers\?"))
    page.goto(f"/evaluate?run={RUN}#compare")
    expect(page.locator(".contents [aria-current]")).to_have_text("Compare")
    top = page.locator("#compare").bounding_box()
    assert top is not None and top["y"] < 200


def test_a_benchmark_has_differences_and_scores(open_page: OpenPage, site: Site) -> None:
    write_benchmark(site.data, site.run, "elsewhere")
    try:
        page = open_page(color_scheme="light")
        page.goto("/benchmark")
        differences = page.get_by_role("region", name="Differences in ROC-AUC")
        scores = page.get_by_role("region", name="Scores: mean ROC-AUC")
        check_looks(page, lambda _: differences)
        expect(page.get_by_role("main")).to_contain_text("4 data sets with 150 to 200 training and 99 test texts")
        expect(differences.get_by_text("higher on")).to_have_count(3 * 2)
        expect(scores.locator("tbody")).to_have_count(4)
        expect(page.get_by_role("link", name="elsewhere")).to_have_count(0)
        expect(page.get_by_text(f"Data sets: {DATASETS[0]}")).to_be_visible()
        scores.get_by_role("link", name=site.run).click()
        expect(page.get_by_role("heading", name=site.run, exact=True)).to_be_visible()
        expect(page.get_by_text("of the loss that mean-ablating the MLP costs")).to_be_visible()
        expect(page.locator(".main-results")).to_contain_text("KL divergence")
    finally:
        shutil.rmtree(site.data / BENCHMARK_FOLDER)


def test_training_progress_is_shown_live(page: Page, site: Site, tmp_path: Path) -> None:
    def done() -> float:
        return float(page.get_by_role("progressbar", name="Training progress").evaluate("bar => bar.value"))

    with start(*site.fit("live", 2_000_000), folder=tmp_path) as fitting:
        assert fitting.stderr is not None
        assert "Training live" in fitting.stderr.readline()
        page.goto("/runs/live")
        expect(page.get_by_text("training").first).to_be_visible()
        before = done()
        wait_for(lambda: done() > before)
        fitting.send_signal(signal.SIGTERM)
        assert ended(fitting).returncode == 143
    expect(page.get_by_text("stopped").first).to_be_visible()
    expect(page.get_by_role("region", name="Resume training")).to_contain_text(re.compile("mxd train.*--resume"))
    page.goto("/runs")
    row = page.get_by_role("row", name=re.compile("^live"))
    expect(row).to_contain_text("stopped", ignore_case=True)
