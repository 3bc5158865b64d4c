"""Serve a folder of graphs in circuit-tracer's front end, which then loads nothing from the internet.

    mxd circuit RUN --prompt 'Once upon a' --graph graphs
    .venv/bin/python scripts/circuit_tracer_page.py graphs --port 9000

The first start installs circuit-tracer from PyPI and the page's libraries from npm into ``.interop``. The page itself
names other web sites: its copy names these libraries instead.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.peers.environments import ENVIRONMENTS, environment  # noqa: E402

PACKAGES = ("d3@7.9.0", "d3-jetpack@2.3.0", "dagre@0.8.5", "pako@2.1.0")
SCRIPTS = {
    "d3.js": "d3/dist/d3.min.js",
    "collection.js": "d3-collection/dist/d3-collection.min.js",
    "jetpack.js": "d3-jetpack/build/d3-jetpack.cjs",
    "dagre.js": "dagre/dist/dagre.min.js",
    "pako.js": "pako/dist/pako.min.js",
}
"""Names beside the page, and files of the packages, which come in this order."""
FROM_ELSEWHERE = re.compile(r"<script src='https?://[^']+'></script>\n?")
BEFORE_JETPACK = """
window.define = (names, jetpack) => {
  const made = {};
  jetpack(made, ...Array(names.length - 1).fill(d3));
  const conventions = (given) => {
    const chart = made.conventions(given);
    return Object.assign(chart, { drawAxis: (svg) => made.drawAxis({ ...chart, svg: svg ?? chart.svg }) });
  };
  Object.assign(d3, made, { conventions });
};
define.amd = {};
"""
"""d3-jetpack adds itself to d3 only as a module. The page calls ``drawAxis`` on what ``conventions`` returns."""


def make_page(folder: Path) -> Path:
    """Make the page, unless it is there, and return its folder.

    Raises:
        UserError: circuit-tracer cannot be installed.
        subprocess.CalledProcessError: the libraries cannot be installed. npm has said why.
    """
    page = folder / "page"
    if page.is_dir():
        return page
    words = ["npm", "install", "--prefix", str(folder), "--no-save", "--ignore-scripts", "--legacy-peer-deps"]
    subprocess.run([*words, "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES], check=True)
    partial_page = folder / "partial"
    shutil.rmtree(partial_page, ignore_errors=True)
    shutil.copytree(_packages() / "circuit_tracer" / "frontend" / "assets", partial_page)
    for name, source in SCRIPTS.items():
        shutil.copy(folder / "node_modules" / source, partial_page / name)
    index = partial_page / "index.html"
    index.write_text(offline(index.read_text("utf-8")), "utf-8")
    return partial_page.rename(page)


def offline(html: str) -> str:
    """Return the page with the libraries beside it instead of those of other web sites."""
    tags = [f"<script src='{name}'></script>" for name in SCRIPTS]
    tags.insert(2, f"<script>{BEFORE_JETPACK}</script>")
    tags.insert(4, "<script>delete window.define</script>")
    first, *others = FROM_ELSEWHERE.split(html)
    return first + "\n".join(tags) + "\n" + "".join(others)


def serve(graphs: Path, page: Path, port: int) -> ThreadingHTTPServer:
    """Return a server on loopback that answers with circuit-tracer's own handler."""
    sys.path.append(str(_packages()))
    handler = importlib.import_module("circuit_tracer.frontend.local_server").CircuitGraphHandler
    return ThreadingHTTPServer(("127.0.0.1", port), partial(handler, frontend_dir=page, data_dir=str(graphs)))


def _packages() -> Path:
    """Folder of the packages of the environment with circuit-tracer."""
    return next((environment("circuit-tracer").parents[1] / "lib").glob("python*/site-packages"))


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, help="folder of mxd circuit --graph")
    parser.add_argument("--port", type=int, default=9000)
    given = parser.parse_args()
    if not (given.graphs / "graph-metadata.json").is_file():
        parser.error(
            f"{given.graphs} has no graph-metadata.json. Write it with 'mxd circuit … --graph {given.graphs}'."
        )
    page = make_page(ENVIRONMENTS / "circuit-tracer-page")
    with serve(given.graphs, page, given.port) as server, suppress(KeyboardInterrupt):
        print(f"Graphs are at http://127.0.0.1:{server.server_port}/index.html (press Ctrl-C to stop)")
        server.serve_forever()


if __name__ == "__main__":
    main()
