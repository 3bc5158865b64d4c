"""Passages protected over HTTP: progress and result, what is refused, what leaves nothing, the file to take away."""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections.abc import Iterator
from contextlib import aclosing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from mxd.backend.api.app import create_app
from mxd.backend.api.dependencies import Services
from mxd.backend.api.privacy_service import PrivacyService
from mxd.backend.database.engine import opened, reading
from mxd.backend.plots.report.commands import commands
from mxd.backend.schemas import ProtectEvent, ProtectRequest
from mxd.backend.settings import Settings
from mxd.trainer.analysis.indexing import build_index
from mxd.trainer.config import IndexConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.run import Run
from mxd.trainer.training.privacy.metrics import confidence_by_token
from mxd.trainer.training.privacy.results import PrivacyResult
from mxd.trainer.training.train import train_layer
from tests.helpers.language_models import saved, sure_language_model
from tests.helpers.runs import small_world

PASSAGES = ("the red fox was here and the blue dog was not", "an old cow stood in a very old barn all day")
ASKED: dict[str, Any] = {
    "runs": ["small"],
    "passages": [{"text": text} for text in PASSAGES],
    "steps": 4,
    "learning_rate": 0.01,
    "max_added_loss": 5,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the indexed run ``small``, and ``bare`` without an index."""
    folder = tmp_path_factory.mktemp("privacy")
    world = small_world(folder)
    source = str(saved(sure_language_model(), folder / "language-model"))
    language_model = LanguageModel.load(source, "cpu")
    for name in ("small", "bare"):
        train_layer(world.config(name, language_model=source, tokens=128), world.data, world.database, language_model)
    build_index(
        Run.load("small", world.data), IndexConfig(text=world.text, tokens=4_000), language_model, world.database
    )
    world.database.dispose()
    return world.data


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[TestClient]:
    """A client of a server on them."""
    with TestClient(create_app(Settings(data=data, frontend=data / "dist", device="cpu"))) as it:
        yield it


def events(client: TestClient, **changes: Any) -> list[dict[str, Any]]:
    """The data of all events of a protection."""
    with client.stream("POST", "/api/privacy", json={**ASKED, **changes}) as answer:
        body = "".join(answer.iter_text())
        assert answer.status_code == 200, body
    blocks = [block for block in body.split("\n\n") if block.startswith("event")]
    return [json.loads(block.split("\ndata: ")[1]) for block in blocks]


def test_progress_is_streamed_and_a_run_is_created(client: TestClient, data: Path) -> None:
    found = events(client)
    for event in found:
        TypeAdapter[ProtectEvent](ProtectEvent).validate_python(event)
    assert [event["step"] for event in found[:-1]] == [0, 1, 2, 3, 4]
    assert found[-1]["event"] == "done"
    result = TypeAdapter(PrivacyResult).validate_python(found[-1]["protected"]["result"])
    assert result.protected.after.confidence_distance < result.protected.before.confidence_distance
    assert Run.load("small-private", data).config.parents == ("small",)
    assert "small-private" in [run["name"] for run in client.get("/api/runs").json()["runs"]]
    for name in ("small", "small-private"):
        listed = client.get(f"/api/runs/{name}/privacy").json()["protected"]
        assert [one["result"]["runs"] for one in listed] == [["small-private"]]
    assert client.get("/api/runs/bare/privacy").json() == {"protected": []}
    assert client.get("/api/figures/added-layers").status_code == 200
    with opened(sqlite_url(data)) as database, reading(database) as session:
        assert any(line.startswith("# small-private is of mxd protect") for line in commands(session))
    told = json.dumps([client.get("/api/runs/small/privacy").json(), client.get("/api/runs/small-private").json()])
    assert not any(text in told for text in PASSAGES)


def test_passages_are_stored_on_request(client: TestClient, data: Path) -> None:
    done = events(client, name="{run}-shown", steps=2, store_passages=True)[-1]["protected"]
    stored = done["result"]["passage_tokens"]
    assert ["".join(token["text"] for token in tokens) for tokens in stored] == list(PASSAGES)
    assert (done["has_runs"], done["skip_tokens"]) == (True, 4)
    scored = [token for tokens in stored for token in tokens[4:]]
    for stage in ("before", "after"):
        measured = done["result"]["protected"][stage]
        assert len(scored) == measured["predictions"]
        mean = sum(token[stage]["probability"] for token in scored) / len(scored)
        assert mean == pytest.approx(measured["true_token"], abs=1e-5)
    (listed,) = client.get("/api/runs/small-shown/privacy").json()["protected"]
    assert listed == done


def test_tokens_equal_those_of_the_trainer(client: TestClient, data: Path) -> None:
    events(client, name="{run}-tokens", steps=2)
    asked = {"before": ["small"], "after": ["small-tokens"], "text": PASSAGES[0]}
    answer = client.post("/api/privacy/tokens", json=asked)
    assert answer.status_code == 200, answer.text
    before, after = (Run.load(name, data) for name in ("small", "small-tokens"))
    wanted = confidence_by_token(
        LanguageModel.load(before.language_model_source, "cpu"), [before], [after], PASSAGES[0]
    )
    tokens = answer.json()["tokens"]
    assert "".join(token["text"] for token in tokens) == PASSAGES[0]
    for token, own in zip(tokens, wanted, strict=True):
        for arm in ("before", "after"):
            expected = getattr(own, arm)
            assert token[arm]["probability"] == pytest.approx(expected.probability, abs=1e-5)
            assert token[arm]["entropy"] == pytest.approx(expected.entropy, abs=1e-5)
            assert token[arm]["likely"] == expected.likely
    assert any(token["before"] != token["after"] for token in tokens)


@pytest.mark.parametrize(
    ("changes", "status", "sentence"),
    [
        ({"runs": ["nobody"]}, 404, "Unknown run 'nobody'"),
        ({"runs": ["bare"]}, 404, "mxd index bare"),
        ({"runs": ["small", "bare"]}, 400, "both replace layer 1"),
        ({"name": "small"}, 400, "Run 'small' already exists"),
        ({"name": "../away"}, 400, "Invalid run name"),
        ({"passages": [{"text": "no"}]}, 400, "Make it longer"),
        ({"passages": [{"text": "the old dog sat " * 60}]}, 413, "Shorten the text"),
        ({"passages": []}, 422, "passages"),
        ({"theta": 1}, 422, "theta"),
    ],
)
def test_invalid_requests_have_an_error_status(
    client: TestClient, changes: dict[str, Any], status: int, sentence: str
) -> None:
    short = {"name": "{run}-refused", **changes}
    answer = client.post("/api/privacy", json={**ASKED, **short})
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["error"]["message"]


def test_later_errors_are_events(client: TestClient, data: Path) -> None:
    found = events(client, name="{run}-nothing", learning_rate=1e-12)
    assert found[-1]["event"] == "error"
    assert "No step reduced the confidence" in found[-1]["error"]["message"]
    assert not (data / "runs" / "small-nothing").exists()


def test_disconnecting_saves_no_run(client: TestClient, data: Path) -> None:
    services: Services = client.app.state.services  # type: ignore[attr-defined]
    request = ProtectRequest.model_validate({**ASKED, "name": "{run}-left", "steps": 50})

    async def leave() -> int:
        told = 0
        privacy_service = PrivacyService(services.live, services.database, services.settings)
        async with aclosing(privacy_service.protect(request)) as steps:
            async for _ in steps:
                told += 1
                if told == 3:
                    break
        return told

    assert asyncio.run(leave()) == 3
    assert not (data / "runs" / "small-left").exists()
    assert services.live.num_active == 0


def test_a_protected_run_is_downloaded_as_one_file(client: TestClient) -> None:
    events(client, name="{run}-packed", steps=2)
    answer = client.get("/api/runs/small-packed/bundle")
    assert answer.status_code == 200
    assert "small-packed.mxd" in answer.headers["content-disposition"]
    with zipfile.ZipFile(BytesIO(answer.content)) as bundle:
        names = bundle.namelist()
        whole = b"".join(bundle.read(name) for name in names)
    assert "run/layer.safetensors" in names
    assert not any(text.encode() in whole for text in PASSAGES)
    assert client.get("/api/runs/nobody/bundle").status_code == 404
