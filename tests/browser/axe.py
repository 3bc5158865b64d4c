"""Accessibility of what a page shows, as axe sees it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

SOURCE = Path(__file__).parents[2] / "frontend/node_modules/axe-core/axe.min.js"

# While a list of hits is open the rest of the page is hidden from screen readers but not inert: Tab leaves the list and
# closes it, so nobody gets to what is hidden. The rule cannot know that.
OPTIONS = "{resultTypes: ['violations'], rules: {'aria-hidden-focus': {enabled: false}}}"


@cache
def _source() -> str:
    return SOURCE.read_text("utf-8")


def violations(page: Page) -> list[str]:
    """Each rule that is broken, of whatever impact, how often, and the first place."""
    page.evaluate(_source())
    found: list[dict[str, Any]] = page.evaluate(f"axe.run({OPTIONS})")["violations"]
    return [_said(violation) for violation in found]


def _said(violation: dict[str, Any]) -> str:
    return f"{violation['id']} ({len(violation['nodes'])}): {violation['nodes'][0]['target']}"
