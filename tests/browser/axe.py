"""Accessibility of what a page shows, as axe sees it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from playwright.sync_api import Page

SOURCE = Path(__file__).parents[2] / "frontend/node_modules/axe-core/axe.min.js"
GRAVE = ("serious", "critical")

# While a list of hits is open the rest of the page is hidden from screen readers but not inert: Tab leaves the list and
# closes it, so nobody gets to what is hidden. The rule cannot know that.
OPTIONS = "{resultTypes: ['violations'], rules: {'aria-hidden-focus': {enabled: false}}}"


@cache
def _source() -> str:
    return SOURCE.read_text("utf-8")


def grave_violations(page: Page) -> list[str]:
    """What keeps people out: each rule that is broken, how often, and the first place."""
    page.evaluate(_source())
    found = page.evaluate(f"axe.run({OPTIONS})")
    return [
        f"{violation['id']} ({len(violation['nodes'])}): {violation['nodes'][0]['target']}"
        for violation in found["violations"]
        if violation["impact"] in GRAVE
    ]
