"""The benchmark: dots with intervals, and links."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from mxd.trainer.config.analysis import BENCHMARK_FOLDER
from tests.browser.conftest import OpenPage, Site
from tests.browser.test_pages import check_looks
from tests.helpers.analysis.benchmarks import DATASETS, write_benchmark

pytestmark = pytest.mark.browser


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
    check_looks(page, lambda page: page.get_by_role("region", name="Differences"))
    expect(page.get_by_role("main")).to_contain_text("4 data sets with 150 to 200 training and 99 test texts")
    differences = page.get_by_role("region", name="Differences")
    expect(differences.get_by_text("higher on")).to_have_count(3 * 2)
    expect(page.get_by_role("region", name="Scores").get_by_role("rowheader")).to_have_count(4)
    expect(page.get_by_role("link", name="elsewhere")).to_have_count(0)
    expect(page.get_by_text(f"Data sets: {DATASETS[0]}")).to_be_visible()
    page.get_by_role("region", name="Scores").get_by_role("link", name=site.run).click()
    expect(page.get_by_role("heading", name=site.run)).to_be_visible()
