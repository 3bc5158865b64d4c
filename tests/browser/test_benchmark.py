"""The page of the benchmark: verdict, figure, tables and links."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from mxd.trainer.config.analysis import BENCHMARK_FOLDER
from tests.browser.axe import violations
from tests.browser.conftest import OpenPage, Site
from tests.browser.test_layout_shift import MAX_SHIFT, SUM_SHIFTS
from tests.browser.test_pages import NARROW, check_looks
from tests.helpers.analysis.benchmarks import DATASETS, write_benchmark

pytestmark = pytest.mark.browser


@pytest.fixture
def stored(site: Site) -> Iterator[None]:
    """A benchmark in the site's data folder, removed afterwards."""
    write_benchmark(site.data, site.run, "elsewhere")
    yield
    shutil.rmtree(site.data / BENCHMARK_FOLDER)


@pytest.mark.usefixtures("stored")
def test_a_benchmark_has_a_verdict_a_figure_and_tables(open_page: OpenPage, site: Site) -> None:
    page = open_page(color_scheme="light", reduced_motion="no-preference")
    page.add_init_script(SUM_SHIFTS)
    page.goto("/benchmark")
    expect(page.locator(".plot .legend").first).to_be_visible()
    assert page.evaluate("window.shift") <= MAX_SHIFT
    check_looks(page, lambda page: page.get_by_role("region", name="Differences"))
    sample = "4 of 113 data sets, chosen by name. Each with 150 to 200 training and 99 test texts"
    expect(page.get_by_role("main")).to_contain_text(sample)
    expect(page.get_by_role("main")).to_contain_text("The 95 % intervals over 4 data sets are ±")
    expect(page.get_by_role("list", name="Comparisons").get_by_role("listitem")).to_have_count(3)
    # The window is narrow now, where the rows are blocks without a head.
    expect(page.get_by_role("region", name="Scores").get_by_role("row")).to_have_count(4)
    expect(page.get_by_role("region", name="Differences").get_by_role("row")).to_have_count(3 * 2)
    expect(page.get_by_role("link", name="elsewhere")).to_have_count(0)
    page.get_by_text("4 data sets", exact=True).click()
    expect(page.get_by_text(DATASETS[0])).to_be_visible()
    page.get_by_role("region", name="Scores").get_by_role("link", name=site.run).click()
    expect(page.get_by_role("heading", name=site.run)).to_be_visible()


def test_the_page_is_in_the_menu_of_a_phone(open_page: OpenPage) -> None:
    page = open_page(viewport=NARROW)
    page.goto("/faithfulness")
    page.get_by_role("navigation", name="Places").get_by_role("link", name="Evaluate").click()
    page.get_by_role("link", name="Benchmark").click()
    expect(page.get_by_role("heading", name="No benchmark yet")).to_be_visible()
    expect(page.get_by_text("mxd benchmark").first).to_be_visible()
    assert violations(page) == []
