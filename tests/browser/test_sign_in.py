"""Signing in, where a server asks for a token."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from mxd.backend.database.access_tokens import create_token
from mxd.backend.database.engine import open_database
from mxd.trainer.storage.database.open import writing
from tests.browser.axe import violations
from tests.browser.conftest import OpenPage, Site
from tests.helpers.processes import server

pytestmark = pytest.mark.browser


@pytest.fixture
def guarded(site: Site, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Address of a server that asks for tokens, and a token that may read."""
    path = tmp_path / "database.sqlite"
    shutil.copy(site.database.removeprefix("sqlite:///"), path)
    database = open_database(f"sqlite:///{path}")
    with writing(database) as session:
        token = create_token(session, "read", "browser").token
    database.dispose()
    with server(site.data, "--database", f"sqlite:///{path}", "--access", "tokens") as (url, _):
        yield url, token


def test_an_access_token_signs_in(guarded: tuple[str, str], open_page: OpenPage, forgiven: list[str]) -> None:
    url, token = guarded
    forgiven += ["401"]
    page = open_page()
    page.goto(f"{url}/runs")
    expect(page.get_by_role("heading", name="Sign in to MxD Explorer")).to_be_visible()
    assert violations(page) == []
    page.get_by_label("Token").fill("mxd_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Unknown token")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    expect(page.get_by_text("Signed in: read access")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to MxD Explorer")).to_be_visible()
