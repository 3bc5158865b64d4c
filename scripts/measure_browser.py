"""Measure the dashboard in a browser: first load of the Experts page, next expert, scrolling the table.

    python scripts/measure_browser.py http://127.0.0.1:8000 smollm2-l10

Times come from the page's own clock; medians of several rounds. A frame is long if it takes more than 50 ms. Scrolling
starts when the page and its figures are complete.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ROUNDS = 7
SCROLL_SECONDS = 10
LONG_FRAME_MS = 50
LOOKED_AT_MS = 500
ROWS = "document.querySelector('table.experts-table tbody tr td.c-expert, table.experts-table tbody tr td')"
CONTEXT = "document.querySelector('li .line')?.textContent"

WHEN = f"""() => new Promise((resolve) => {{
  const look = () => ({ROWS} ? resolve(performance.now()) : requestAnimationFrame(look));
  look();
}})"""
NEXT = f"""() => {{
  const context = () => {CONTEXT};
  const before = context();
  window.waited = new Promise((resolve) => {{
    addEventListener("keydown", () => {{
      const start = performance.now();
      const look = () => (context() !== undefined && context() !== before
        ? resolve(performance.now() - start) : requestAnimationFrame(look));
      requestAnimationFrame(look);
    }}, {{ once: true, capture: true }});
  }});
}}"""
FRAMES = """(milliseconds) => new Promise((resolve) => {
  const frames = [], start = performance.now();
  let last = start;
  const tick = (now) => {
    frames.push(now - last);
    last = now;
    now - start < milliseconds ? requestAnimationFrame(tick) : resolve(frames);
  };
  requestAnimationFrame(tick);
})"""


def first_load(browser: Browser, url: str, run: str) -> tuple[float, int]:
    """Milliseconds until rows are visible, and compressed bytes of JavaScript without Plotly."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    scripts: dict[str, str] = {}
    sizes: dict[str, int] = {}
    session.on("Network.responseReceived", lambda event: scripts.update({event["requestId"]: event["response"]["url"]}))
    session.on("Network.loadingFinished", lambda event: sizes.update({event["requestId"]: event["encodedDataLength"]}))
    page.goto(f"{url}/experts?run={run}", wait_until="commit")
    shown = page.evaluate(WHEN)
    page.wait_for_load_state("networkidle")
    ours = [number for number, address in scripts.items() if address.endswith(".js") and "plotly" not in address]
    page.context.close()
    return float(shown), sum(sizes.get(number, 0) for number in ours)


def next_expert(page: Page, looked_at_ms: int = 0) -> float:
    """Milliseconds from the key press to the next expert's examples on screen."""
    page.wait_for_timeout(looked_at_ms)
    page.evaluate(NEXT)
    page.keyboard.press("k")
    return float(page.evaluate("() => window.waited"))


def scrolling(page: Page) -> list[float]:
    """Milliseconds between frames while the table scrolls."""
    page.mouse.move(700, 700)
    page.evaluate(f"(ms) => {{ window.frames_ = ({FRAMES})(ms); }}", SCROLL_SECONDS * 1000)
    for _ in range(SCROLL_SECONDS * 20):
        page.mouse.wheel(0, 120)
        page.wait_for_timeout(50)
    frames: list[float] = page.evaluate("() => window.frames_")
    return frames[1:]


def measure(url: str, run: str) -> dict[str, Any]:
    """Run all measurements."""
    executable = os.environ.get("MXD_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        loads = [first_load(browser, url, run) for _ in range(ROUNDS)]
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.goto(f"{url}/experts?run={run}")
        page.wait_for_selector("svg.main-svg")
        page.wait_for_timeout(LOOKED_AT_MS)
        frames = scrolling(page)
        drawn = page.request.get(f"{url}/api/runs/{run}/experts?among=active&sort=random&limit=1").json()
        first = drawn["experts"][0]["expert"]
        page.goto(f"{url}/experts/{first}?run={run}")
        page.wait_for_selector("li .line")
        nexts = [next_expert(page, LOOKED_AT_MS) for _ in range(ROUNDS + 1)][1:]
        hurried = [next_expert(page) for _ in range(ROUNDS)]
        browser.close()
    return {
        "first_load_ms": statistics.median(ms for ms, _ in loads),
        "javascript_bytes": loads[-1][1],
        "next_expert_ms": statistics.median(nexts),
        "next_experts_ms": [round(ms) for ms in nexts],
        "next_expert_at_once_ms": statistics.median(hurried),
        "frames": len(frames),
        "longest_frame_ms": max(frames),
        "long_frames": sum(round(frame) > LONG_FRAME_MS for frame in frames),
    }


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:3]), indent=1))
