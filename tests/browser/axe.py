"""Accessibility of what a page shows, as axe sees it."""

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

SOURCE = Path(__file__).parents[2] / "frontend/node_modules/axe-core/axe.min.js"

# While a list of hits is open the rest of the page is hidden from screen readers but not inert: Tab leaves the list and
# closes it, so hidden content is out of reach. The rule cannot know that.
ALL = "resultTypes: ['violations'], rules: {'aria-hidden-focus': {enabled: false}}"
COLOURS = "resultTypes: ['violations'], runOnly: ['color-contrast']"
"""The rule that another theme can break. It takes most of the time of axe."""
LAYOUT = ALL.replace("}}", "}, 'color-contrast': {enabled: false}}")
"""The rules that another width can break."""


@cache
def _source() -> str:
    return SOURCE.read_text("utf-8")


def violations(page: Page, options: str = ALL) -> list[str]:
    """Each rule that is broken, of whatever impact, how often, and the first place."""
    page.evaluate(_source())
    found: list[dict[str, Any]] = page.evaluate(f"axe.run({{{options}}})")["violations"]
    return [_said(violation) for violation in found if not _is_heading_hidden(page, violation["id"])]


def _is_heading_hidden(page: Page, rule: str) -> bool:
    """While something is open over the page, the page's heading is there but hidden on purpose."""
    return rule == "page-has-heading-one" and page.locator("h1[aria-hidden=true], [aria-hidden=true] h1").count() > 0


def _said(violation: dict[str, Any]) -> str:
    return f"{violation['id']} ({len(violation['nodes'])}): {violation['nodes'][0]['target']}"
