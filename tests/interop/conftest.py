"""Interoperability, only through ``make interop``: real packages, Neuronpedia's code and a copy of the demo.

They are installed in ``.interop``: delete it to make them again.
"""

import json
import os
import shutil
import subprocess
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi.testclient import TestClient
from filelock import FileLock

from benchmarks.peers.environments import ENVIRONMENTS, ROOT, environment
from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.database.demo import unpack_database
from mxd.backend.database.maintenance import upgrade_database
from mxd.backend.settings import DEMO_DATABASE, Settings
from mxd.trainer.config.base import SAMPLE
from mxd.trainer.storage.database.open import sqlite_url

CACHE = ENVIRONMENTS
ORACLES = Path(__file__).parent / "oracles"
NEURONPEDIA = "https://github.com/hijohnnylin/neuronpedia"
NEURONPEDIA_COMMIT = "ebb8426fc550ad5d1f76d52c271a624af3c08a57"
NEURONPEDIA_PATHS = ("utils/neuronpedia-utils", "apps/webapp/app/api/graph")
CLT_TRAINING = "https://github.com/EleutherAI/clt-training"
CLT_TRAINING_COMMITS = {
    "mxd": "b2f9cb4a0164ab0d5dc4fb6853a65b6a98038d68",
    "molt": "6acba2b93cd0b360e663e4c1987e17bffd1767c9",
}
"""Branch -> pinned commit."""


def ask(name: str, script: str, *arguments: object, **variables: Any) -> Any:
    """Run ``oracles/SCRIPT.py`` in the environment ``name``. Returns what it prints as JSON on its last line."""
    return json.loads(run_script(name, ORACLES / f"{script}.py", *arguments, **variables).splitlines()[-1])


def run_script(name: str, script: Path, *arguments: object, cwd: Path = ROOT, **variables: str) -> str:
    """Run a Python script in an environment. Returns what it prints."""
    words = [str(environment(name)), str(script), *map(str, arguments)]
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environ = {**os.environ, **offline, **variables}
    # Neuronpedia's converter asks about every option, also about flags that are off.
    done = subprocess.run(words, cwd=cwd, env=environ, input="n\n", capture_output=True, text=True)
    assert done.returncode == 0, f"{script.name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def neuronpedia() -> Path:
    """Return a checkout of Neuronpedia, which is not a package, at the pinned commit."""
    return _checkout("neuronpedia", "INTEROP_NEURONPEDIA", NEURONPEDIA, NEURONPEDIA_COMMIT, NEURONPEDIA_PATHS)


def clt_training(branch: str) -> Path:
    """Return a checkout of a branch of clt-training, which is not a package, at the pinned commit."""
    commit = CLT_TRAINING_COMMITS[branch]
    return _checkout(f"clt-training-{branch}", "INTEROP_CLT_TRAINING", CLT_TRAINING, commit, ("sparsify",))


def _checkout(name: str, variable: str, address: str, commit: str, paths: tuple[str, ...]) -> Path:
    """A commit of a repository; the environment variable may name a clone of it."""
    folder, source = CACHE / name, os.environ.get(variable, address)
    with _lock(folder):
        if not (folder / ".complete").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            clone = ["git", "clone", "-q", "--no-checkout", source, str(folder)]
            checkout = ["git", "-C", str(folder), "checkout", "-q", commit, "--", *paths]
            assert all(subprocess.run(words).returncode == 0 for words in (clone, checkout)), (
                f"Not tested: {source} cannot be fetched at {commit[:7]}. Without GitHub, set {variable} to a clone."
            )
            (folder / ".complete").touch()
    return folder


def demo_copy() -> Path:
    """Return a copy of the demo as a data folder, with its database. A changed demo gets another folder."""
    compressed = SAMPLE / DEMO_DATABASE
    folder = CACHE / f"demo-{blake2b(compressed.read_bytes(), digest_size=4).hexdigest()}"
    with _lock(folder):
        if not (folder / ".complete").is_file():
            shutil.copytree(SAMPLE, folder, dirs_exist_ok=True)
            unpack_database(folder, folder / "mxd.sqlite")
            (folder / ".complete").touch()
        upgrade_database(sqlite_url(folder))
    return folder


def _lock(folder: Path) -> FileLock:
    """Files of different tests run in several processes."""
    CACHE.mkdir(exist_ok=True)
    return FileLock(f"{folder}.lock")


collect_ignore_glob = [] if "INTEROP" in os.environ else ["test_*.py"]
TABLE = CACHE / "table.md"
PACKAGES = {"saelens": "sae-lens", "sparsify": "eai-sparsify", "circuit-tracer": "circuit-tracer (a fork)"}
MXD, TRANSCODER = "smollm2-l10", "smollm2-l10-transcoder"
"""Runs of the demo whose layers are exported."""
TOLERANCE = 1e-6
"""Largest difference between outputs, relative to the largest output. Float32 resolves 1.2e-7."""


def add_row(oracle: str, version: str, checked: str, result: str) -> None:
    """Add a row to the table in docs/interop.md, in ``.interop/table.md``. Several processes do so."""
    with TABLE.open("a", encoding="utf-8") as file:
        file.write(f"| {oracle} | {version} | {checked} | {result} |\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin a new table, in the process that starts the others."""
    if "INTEROP" in os.environ and not hasattr(session.config, "workerinput"):
        TABLE.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def demo() -> Path:
    return demo_copy()


NAME = "theirs"


class Browsed(NamedTuple):
    """Numbers of imported features, dead ones included, of their examples, and of labels on the first page."""

    experts: int
    examples: int
    labels: int


def browse(folder: Path, data: Path) -> Browsed:
    """Import a folder as a run without weights, and open its experts and the page of the first one."""
    assert mxd(["import", str(folder), "--what", "features", "--name", NAME, "--data", str(data)]) == 0
    with TestClient(create_app(Settings(data=data))) as client:
        listed = client.get(f"/api/runs/{NAME}/experts").json()
        first = listed["experts"][0]
        detail = client.get(f"/api/runs/{NAME}/experts/{first['expert']}")
        assert detail.status_code == 200, detail.text
        examples = client.get("/api/health").json()["examples"]
    return Browsed(listed["matching"], examples, sum(row["automatic"] is not None for row in listed["experts"]))
