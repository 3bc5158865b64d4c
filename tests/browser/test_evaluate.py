"""Evaluate and the page of one run: parts, the benchmark, and progress during training."""

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from mxd.trainer.config.analysis import BENCHMARK_FOLDER
from tests.browser.conftest import OpenPage, Site
from tests.browser.sample import RUN
from tests.browser.test_pages import check_looks
from tests.helpers.analysis.benchmarks import DATASETS, write_benchmark
from tests.helpers.processes import ended, start, wait_for

pytestmark = pytest.mark.browser


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


def test_the_page_of_an_evaluated_run_has_its_faithfulness(page: Page) -> None:
    page.goto(f"/runs/{RUN}")
    expect(page.get_by_text("of the loss that removing the MLP costs")).to_be_visible()
    expect(page.locator(".main-results")).to_contain_text("KL divergence")


def test_a_named_part_is_at_the_top_and_current(page: Page) -> None:
    page.goto(f"/evaluate?run={RUN}#compare")
    expect(page.locator(".contents [aria-current]")).to_have_text("Compare")
    top = page.locator("#compare").bounding_box()
    assert top is not None and top["y"] < 200


@pytest.fixture
def stored(site: Site) -> Iterator[None]:
    """A benchmark in the site's data folder, removed afterwards."""
    write_benchmark(site.data, site.run, "elsewhere")
    yield
    shutil.rmtree(site.data / BENCHMARK_FOLDER)


@pytest.mark.usefixtures("stored")
def test_a_benchmark_has_differences_and_scores(open_page: OpenPage, site: Site) -> None:
    page = open_page(color_scheme="light")
    page.goto("/benchmark")
    check_looks(page, lambda page: page.get_by_role("region", name="Differences in ROC-AUC"))
    expect(page.get_by_role("main")).to_contain_text("4 data sets with 150 to 200 training and 99 test texts")
    differences = page.get_by_role("region", name="Differences in ROC-AUC")
    expect(differences.get_by_text("higher on")).to_have_count(3 * 2)
    expect(page.get_by_role("region", name="Scores: mean ROC-AUC").locator("tbody")).to_have_count(4)
    expect(page.get_by_role("link", name="elsewhere")).to_have_count(0)
    expect(page.get_by_text(f"Data sets: {DATASETS[0]}")).to_be_visible()
    page.get_by_role("region", name="Scores: mean ROC-AUC").get_by_role("link", name=site.run).click()
    expect(page.get_by_role("heading", name=site.run, exact=True)).to_be_visible()


def done(page: Page) -> float:
    return float(page.get_by_role("progressbar", name="Training progress").evaluate("bar => bar.value"))


def test_training_progress_is_shown_live(page: Page, site: Site, tmp_path: Path) -> None:
    with start(*site.fit("live", 2_000_000), folder=tmp_path) as fitting:
        assert fitting.stderr is not None
        assert "Training live" in fitting.stderr.readline()
        page.goto("/runs/live")
        expect(page.get_by_text("training").first).to_be_visible()
        before = done(page)
        wait_for(lambda: done(page) > before)
        fitting.send_signal(signal.SIGTERM)
        assert ended(fitting).returncode == 143
    expect(page.get_by_text("stopped").first).to_be_visible()
    resume = page.get_by_role("region", name="Resume training")
    expect(resume).to_contain_text("mxd train")
    expect(resume).to_contain_text("--resume")
    page.goto("/runs")
    row = page.get_by_role("row", name=re.compile("^live"))
    expect(row).to_contain_text("stopped", ignore_case=True)
