"""Accessibility of what a page shows, as axe sees it."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

SOURCE = Path(__file__).parents[2] / "frontend/node_modules/axe-core/axe.min.js"

# While a list of hits is open the rest of the page is hidden from screen readers but not inert: Tab leaves the list and
# closes it, so hidden content is out of reach. The rule cannot know that.
ALL = "resultTypes: ['violations'], rules: {'aria-hidden-focus': {enabled: false}}"
COLOURS = "resultTypes: ['violations'], runOnly: ['color-contrast']"
"""The rule that another theme can break. It takes most of the time of axe."""
LAYOUT = ALL.replace("}}", "}, 'color-contrast': {enabled: false}}")
"""The rules that another width can break."""


def violations(page: Page, options: str = ALL) -> list[str]:
    """Each rule that is broken, of whatever impact, how often, and the first place."""
    page.evaluate(SOURCE.read_text("utf-8"))
    found: list[dict[str, Any]] = page.evaluate(f"axe.run({{{options}}})")["violations"]
    # While something is open over the page, the page's heading is there but hidden on purpose.
    if page.locator("h1[aria-hidden=true], [aria-hidden=true] h1").count() > 0:
        found = [each for each in found if each["id"] != "page-has-heading-one"]
    return [f"{each['id']} ({len(each['nodes'])}): {each['nodes'][0]['target']}" for each in found]


def expect_accessible(shown: Locator) -> None:
    """Check the page while something is shown on it, in light and in dark colours."""
    expect(shown).to_be_visible()
    assert violations(shown.page) == []
    shown.page.emulate_media(color_scheme="dark")
    expect(shown).to_be_visible()
    assert violations(shown.page, COLOURS) == []
    shown.page.emulate_media(color_scheme="light")
