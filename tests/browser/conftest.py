"""Fixtures of the browser tests: the sample behind a real server, a real Chromium, pages that are watched."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from mxd.backend.cli.main import run as mxd
from mxd.backend.database.demo import demo_database_url
from mxd.backend.settings import Settings
from tests.helpers import TEST_DEMO
from tests.helpers.processes import demo

RUN = "demo-l3-k16"
_LABELS: dict[str, str] = json.loads((TEST_DEMO / "labels.json").read_text("utf-8"))[RUN]


def labelled(label: str) -> int:
    return next(int(expert) for expert, its in _LABELS.items() if its == label)


ANSWERING = labelled("“System:” answering a question")
"""Fires often, and changes a text visibly."""
CLOSING_TAG = labelled("Closing HTML tag")
DECIMAL_POINT = labelled("Decimal point")
BRACKET = labelled("Opening bracket of a declaration")
"""Never fires in a story."""
UNLABELLED, *_ = (expert for expert in range(3999, 4096) if str(expert) not in _LABELS)
"""Has no label of a person's."""

PATIENCE_MS = 20_000
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Executables, the preferred one first: the headless shell opens a page with half the CPU time."""
DISABLED = ("background-networking", "component-update", "gpu", "quic", "sync")
QUIET = ("--no-first-run", *(f"--disable-{feature}" for feature in DISABLED))

OpenPage = Callable[..., Page]
"""Opens a page in a context of its own; takes what Playwright's ``new_context`` takes."""
GIVEN_UP = "net::ERR_ABORTED"
"""How a request ends that the page itself has ended: by leaving, or by stopping a generation."""


def check(complaints: list[str], forgiven: list[str]) -> None:
    """Fail if the browser reported an error that the test does not expect."""
    assert [complaint for complaint in complaints if not any(word in complaint for word in forgiven)] == []


@dataclass(frozen=True)
class Site:
    """A server with the sample, and a second run that has no index."""

    url: str
    data: Path
    database: str
    run: str
    other_run: str

    def fit(self, name: str, tokens: int) -> list[str]:
        """The command line that fits a small layer of the sample's language model."""
        sizes = "--num-experts 64 --k 4 --batch-tokens 512 --buffer-tokens 2048 --log-every 1"
        text = f"--dataset {self.data / 'text.jsonl.gz'} --tokens {tokens} --on-short-text repeat"
        places = f"--data {self.data} --database {self.database} --name {name} --json"
        return f"train {self.data / 'language-model'} --layer 1 {text} {sizes} {places}".split()


def new_context(browser: Browser, site: Site, **options: Any) -> tuple[BrowserContext, list[str]]:
    """A context and complaints about all its pages: errors and warnings on the console, what was thrown, and requests
    that failed. A violation of the content security policy is an error on the console. Pages are wide and light unless
    the options say otherwise."""
    usual = {"base_url": site.url, "viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"}
    context = browser.new_context(**{**usual, "color_scheme": "light", **options})
    context.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def on_failure(request: Request) -> None:
        if request.failure != GIVEN_UP:
            complaints.append(f"failed: {request.method} {request.url}: {request.failure}")

    def on_response(response: Response) -> None:
        if response.status >= 400:
            complaints.append(f"refused: {response.status} {response.url}")

    context.on("console", on_console)
    context.on("weberror", lambda error: complaints.append(f"thrown: {error.error}"))
    context.on("requestfailed", on_failure)
    context.on("response", on_response)
    return context, complaints


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The tests' demo with its indexed run, served by ``mxd demo``."""
    if not (Settings().frontend / "index.html").is_file():
        pytest.fail("The front end is not built, and there is nothing to open in a browser; run make install.")
    data = tmp_path_factory.mktemp("browser") / "demo"
    shutil.copytree(TEST_DEMO, data)
    for folder in (data / "runs").iterdir():
        if folder.name != RUN:  # not indexed
            shutil.rmtree(folder)
    with demo(data) as (url, process):
        it = Site(url, data, demo_database_url(data), run=RUN, other_run="second")
        assert mxd(it.fit(it.other_run, 4096)) == 0
        yield it
        alive = process.poll() is None
        process.terminate()
        said = process.communicate()[1]
        assert alive, f"the server has ended by itself, with {process.returncode}: {said}"
        assert "Traceback" not in said


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium, or the executable in MXD_CHROMIUM."""
    named = os.environ.get("MXD_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found is not None, "Chromium was not found. Install it, or set MXD_CHROMIUM to its path."
    expect.set_options(timeout=PATIENCE_MS)
    # Not for the session: while Playwright runs, no other test could run an event loop.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def forgiven() -> list[str]:
    """Words of complaints that a test provokes and therefore expects."""
    return []


@pytest.fixture
def open_page(browser: Browser, site: Site, forgiven: list[str]) -> Iterator[OpenPage]:
    """Pages on that server, each in a context of its own; fails if the browser reported an error."""
    opened: list[tuple[BrowserContext, list[str]]] = []

    def open_one(**options: Any) -> Page:
        opened.append(new_context(browser, site, **options))
        return opened[-1][0].new_page()

    yield open_one
    for context, _ in opened:
        context.close()
    check([complaint for _, complaints in opened for complaint in complaints], forgiven)


@pytest.fixture(scope="package")
def shared_context(browser: Browser, site: Site) -> tuple[BrowserContext, list[str]]:
    """A context that keeps the scripts of the pages: loading a page then takes half the CPU time."""
    return new_context(browser, site)


@pytest.fixture
def page(shared_context: tuple[BrowserContext, list[str]], site: Site, forgiven: list[str]) -> Iterator[Page]:
    """A wide page in light colours, in a context without what earlier tests stored."""
    context, complaints = shared_context
    page = context.new_page()
    complaints.clear()
    yield page
    for opened in context.pages:
        opened.close()
    blank = context.new_page()
    stored = {"origin": site.url, "storageTypes": "cookies,local_storage,indexeddb,cache_storage"}
    context.new_cdp_session(blank).send("Storage.clearDataForOrigin", stored)
    blank.close()
    check(complaints, forgiven)
