"""The page of one run during training and after it has stopped."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.helpers.formats.outside import save_sparsify
from tests.helpers.processes import document, ended, mxd, start, wait_for

pytestmark = pytest.mark.browser


def done(page: Page) -> float:
    """Share of the tokens that are done."""
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


def test_the_chosen_curve_is_in_the_url(page: Page, site: Site) -> None:
    page.goto(f"/runs/{site.run}")
    curves = page.get_by_role("main").get_by_role("radiogroup").first.get_by_role("radio")
    expect(curves.first).to_be_checked()
    curves.nth(1).click()
    expect(curves.nth(1)).to_be_checked()
    expect(page).to_have_url(re.compile("curve="))
    page.reload()
    expect(curves.nth(1)).to_be_checked()


def test_an_imported_run_shows_its_source(page: Page, site: Site, tmp_path: Path) -> None:
    language_model = site.data / "language-model"
    width = json.loads((language_model / "config.json").read_text("utf-8"))["hidden_size"]
    save_sparsify(tmp_path / "theirs", width=width)
    places = ["--data", str(site.data), "--database", site.database, "--json"]
    words = ["import", "theirs", "--language-model", str(language_model), "--layer", "1", "--name", "imported"]
    document(mxd(*words, *places, folder=tmp_path))
    page.goto("/runs/imported")
    expect(page.locator(".run-summary")).to_contain_text("Imported from sparsify: theirs")
    page.goto(f"/runs/{site.run}")
    expect(page.locator(".run-summary")).to_contain_text("Trained on")
    expect(page.locator(".run-summary")).not_to_contain_text("Imported from")
    document(mxd("remove", "imported", "--yes", *places, folder=tmp_path))
