"""Waiting until a page is at rest; requests that are held, downloads; accessibility, as axe sees it."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from playwright.sync_api import Download, Locator, Page, Route, expect

T = TypeVar("T")

WAITING = re.compile("^(Loading (?!more)|Routing|Tracing|Choosing|Computing)")
AT_REST = """element => new Promise(done => {
    let [place, since] = ["", 0];
    const look = now => {
        const {x, y, width, height} = element.getBoundingClientRect();
        const next = `${x} ${y} ${width} ${height}`;
        if (next !== place) [place, since] = [next, now];
        if (now - since >= 100) done();
        else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
})"""
"""Resolves once the element has not moved for 100 ms."""


def settle(page: Page) -> None:
    """Wait until nothing on the page says that it is waiting, and its fonts are there."""
    expect(page.get_by_role("status", name=WAITING)).to_have_count(0)
    expect(page.get_by_label("Loading figure")).to_have_count(0)
    expect(page.locator("[aria-busy=true], [data-busy]")).to_have_count(0)
    page.evaluate("document.fonts.ready.then(() => null)")


def rest(target: Locator) -> Locator:
    """The target, in view and no longer moving."""
    expect(target).to_be_visible()
    settle(target.page)
    target.scroll_into_view_if_needed()
    target.evaluate(AT_REST)
    return target


def hover(target: Locator) -> None:
    """Point at the target once it is at rest: a tooltip closes when the page moves or scrolls."""
    rest(target).hover()


def press(page: Page, key: str) -> None:
    """Press a key of the page once it is at rest."""
    settle(page)
    page.locator("body").evaluate(AT_REST)
    page.keyboard.press(key)


def steady(page: Page, read: Callable[[], T]) -> T:
    """A value that is read twice in a row, a quarter of a second apart."""
    last = read()
    for _ in range(120):
        page.wait_for_timeout(250)
        if (now := read()) == last:
            return now
        last = now
    raise TimeoutError


@contextmanager
def holding(page: Page, address: str, release: Callable[[Route], None] = Route.continue_) -> Iterator[list[Route]]:
    """Hold requests to an address until the block ends."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(address, hold)
    yield held
    for route in held:
        release(route)
    page.unroute(address, hold)


def downloaded(page: Page, menu: str, item: str) -> Download:
    """File that an item of a menu saves."""
    page.get_by_role("button", name=menu, exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=item).click()
    return download.value


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
    if page.evaluate("!window.axe"):  # another page has been loaded
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
