"""Waiting until a page is at rest, before it is pointed at, typed at or compared."""

import re
from collections.abc import Callable
from typing import TypeVar

from playwright.sync_api import Locator, Page, expect

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
    expect(page.get_by_text("Loading figure")).to_have_count(0)
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
