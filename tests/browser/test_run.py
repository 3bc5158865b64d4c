"""The page of one run during training and after it has stopped."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.helpers.processes import ended, start, wait_for

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
