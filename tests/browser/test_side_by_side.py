"""Two runs side by side: a copy whose experts were shuffled is seen through, and what is missing is said."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from mxd.backend.database.engine import open_database
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import remove_run
from tests.browser.conftest import Site
from tests.browser.test_pages import check_looks
from tests.helpers.databases import permuted_copy

pytestmark = pytest.mark.browser

COPY = "shuffled"
ORDER = np.random.default_rng(0).permutation(4096).tolist()
ADDRESS = f"/compare?run=demo-l3-k16&with={COPY}"


@pytest.fixture(scope="module", autouse=True)
def shuffled(site: Site) -> Iterator[None]:
    """The sample's run once more, with its experts in another order."""
    database = open_database(site.database)
    permuted_copy(Run.load(site.run, site.data), COPY, ORDER, database)
    yield
    remove_run(COPY, site.data, database)
    database.dispose()


def pairs(page: Page) -> Locator:
    """Rows of the table of matched experts, without its head."""
    table = page.get_by_role("table", name="Matched experts")
    return table.get_by_role("row").filter(has=page.get_by_role("cell"))


def test_experts_of_a_shuffled_copy_are_matched(page: Page, site: Site) -> None:
    page.goto("/runs")
    page.get_by_role("link", name="Compare the runs of layer 3").click()
    expect(page).to_have_url(re.compile("/evaluate"))
    page.get_by_role("link", name="Compare", exact=True).click()
    # The other run of the same MLP is chosen without asking.
    expect(page.get_by_role("button", name="Compare with")).to_contain_text(COPY)
    expect(page.get_by_role("list", name="Similarity of the two runs")).to_contain_text("100.0 %")
    expect(pairs(page).nth(4)).to_be_visible()
    for row in pairs(page).all()[:5]:
        expect(row).to_contain_text(re.compile(r"1\.00\s*mutual"))
        one, other = (int(link.locator(".id").inner_text()) for link in row.get_by_role("link").all())
        assert ORDER[other] == one
    there = pairs(page).first.get_by_role("link").last
    there.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/experts/\d+\?run={COPY}"))
    expect(page.get_by_role("group", name="Example 1", exact=True).first).to_be_visible()


def test_comparison_is_accessible_in_every_look(page: Page) -> None:
    page.goto(ADDRESS)
    check_looks(page, lambda page: pairs(page).nth(2))
