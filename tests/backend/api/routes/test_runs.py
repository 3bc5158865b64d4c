"""Runs over HTTP, streams of their metrics, bundles, and contrasts: progress, result, kinds, cancellation."""

import asyncio
import json
import shlex
from contextlib import ExitStack, aclosing, closing
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import pytest
from fastapi.testclient import TestClient
from pydantic_core import to_jsonable_python
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mxd.backend.api.app import create_app
from mxd.backend.api.dependencies import MAX_DOWNLOADS
from mxd.backend.api.event_stream import Event
from mxd.backend.api.routes import runs
from mxd.backend.cli.parser import command_from
from mxd.backend.inference import jobs
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.inference.service import InferenceService, in_steps
from mxd.backend.settings import Settings
from mxd.trainer.config import ContrastConfig
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import LOCK_FILE
from mxd.trainer.utils.files import exclusive_lock
from tests.helpers.databases import ACTIVE, TOKENS, metric
from tests.helpers.runs import World


def test_the_newest_run_is_first_and_details_have_settings_metrics_and_the_resume_command(client: TestClient) -> None:
    found = client.get("/api/runs").json()["runs"]
    assert [(run["name"], run["indexed_tokens"]) for run in found] == [("second", None), ("first", TOKENS)]
    assert found[1]["active_experts"] == ACTIVE
    assert found[0]["last_metric"]["step"] == 150
    assert found[0]["started_at"].endswith("Z")
    detail = client.get("/api/runs/first").json()
    assert detail["config"].items() >= {"optimizer.learning_rate": 3e-3, "text.context_length": 16}.items()
    assert [point["step"] for point in detail["metrics"]] == [50, 100, 150]
    assert detail["resume_command"] == "mxd train --name first --resume"
    assert detail["run"]["index_command"].startswith("mxd index first --dataset ")
    for command in (detail["train_again_command"], detail["run"]["index_command"]):
        command_from(shlex.split(command)[1:])


def test_a_run_without_a_process_is_stopped(client: TestClient, made_up: Path) -> None:
    assert client.get("/api/runs/second").json()["run"]["status"] == "stopped"
    with exclusive_lock(made_up / "runs" / "second" / LOCK_FILE, "It is being trained"):
        assert client.get("/api/runs/second").json()["run"]["status"] == "training"


def test_events_report_status_and_each_metric_once(
    own: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.01)
    services = create_app(Settings(data=tmp_path, frontend=tmp_path)).state.services
    seen: list[Event] = []

    async def follow() -> None:
        async with aclosing(runs.follow(services, "second", runs.look(services, "second", 100))) as events:
            while len(seen) < 2:
                seen.extend(await anext(events))
            with Session(own) as session, session.begin():
                run = session.scalars(select(RunRecord).where(RunRecord.name == "second")).one()
                session.add_all([metric(run.id, 200), metric(run.id, 250)])
                run.status = "finished"
            while len(seen) < 5:
                seen.extend(await anext(events))

    asyncio.run(follow())
    services.database.dispose()
    told = [(name, to_jsonable_python(data)) for name, data in seen]
    expected = [("metric", 150), ("status", "stopped"), ("metric", 200), ("metric", 250), ("status", "finished")]
    assert [(name, data.get("step") or data["status"]) for name, data in told] == expected


def test_a_bundle_is_downloaded_by_few_at_a_time(live_client: TestClient) -> None:
    path, downloads = "/api/runs/small/bundle", live_client.app.state.services.downloads  # type: ignore[attr-defined]
    with ExitStack() as others:
        for number in range(MAX_DOWNLOADS):
            assert is_zipfile(BytesIO(live_client.get(path).content)), number
            assert downloads.acquire(blocking=False), "finished downloads are not counted"
            others.callback(downloads.release)
        refused = live_client.get(path)
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)


KINDS = "/api/runs/small/options?kinds=true"
RED, BLUE = ["the red fox ran"] * 12, ["a very old blue dog sat"] * 12
ASKED: dict[str, Any] = {"a": {"documents": RED}, "b": {"documents": BLUE}, "min_tokens": 5, "min_units": 2}


def contrast_events(client: TestClient, **more: Any) -> list[dict[str, Any]]:
    answer = client.post("/api/runs/small/contrast", json={**ASKED, **more})
    assert answer.status_code == 200, answer.text
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]


def test_a_contrast_reports_progress_and_both_directions(live_client: TestClient) -> None:
    *steps, done = contrast_events(live_client)
    assert [step["event"] for step in steps] == ["progress"] * len(steps)
    assert steps[0]["tokens"] == 0 and steps[-1]["tokens"] == steps[-1]["total"] > 0
    result = done["result"]
    assert (result["a"]["documents"], result["b"]["units"], result["unit"]) == (12, 12, "document")
    assert result["found_a"] == len(result["more_in_a"]) > 0
    assert result["found_b"] == len(result["more_in_b"]) > 0
    for hit in [*result["more_in_a"], *result["more_in_b"]]:
        assert hit["contrast"]["q_value"] <= 0.05
        for example in [*hit["examples_a"], *hit["examples_b"]]:
            assert example["position"] in [place for place, _, _ in example["active"]]
            assert any("".join(example["tokens"]).strip() in text for text in (RED[0], BLUE[0]))


def test_all_found_experts_are_returned(live_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxd.backend.schemas.comparison.WITH_EXAMPLES", 1)
    result = contrast_events(live_client, limit=20_000)[-1]["result"]
    for side in ("a", "b"):
        with_examples = [bool(hit["examples_a"] or hit["examples_b"]) for hit in result[f"more_in_{side}"]]
        assert with_examples == [True] + [False] * (result[f"found_{side}"] - 1)
        assert len(with_examples) > 1


def test_kinds_of_the_indexed_text(live_client: TestClient, fitted: World) -> None:
    path = fitted.data / "text.jsonl"
    assert live_client.get(KINDS).json()["kinds"] == {"text": "text.jsonl", "kinds": []}
    rows = [("red", text) for text in RED] + [("blue", text) for text in BLUE[:11]]
    path.write_text("".join(json.dumps({"kind": kind, "text": text}) + "\n" for kind, text in rows))
    try:
        kinds = live_client.get(KINDS).json()["kinds"]["kinds"]
        assert [(each["kind"], each["documents"]) for each in kinds] == [("red", 12), ("blue", 11)]
        *_, done = contrast_events(live_client, a={"kind": "red"}, b={"kind": "blue"})
        assert (done["result"]["a"]["name"], done["result"]["b"]["documents"]) == ("red", 11)
        answer = live_client.post("/api/runs/small/contrast", json={**ASKED, "a": {"kind": "rod"}})
        assert answer.status_code == 400
        assert "no kind 'rod'. Did you mean 'red'?" in answer.json()["error"]["message"]
    finally:
        path.unlink()


def test_closing_ends_the_work(fitted: World) -> None:
    async def begin() -> int:
        config = ContrastConfig(min_tokens=2, min_units=2)
        async with aclosing(in_steps(service, ["small"], 1, jobs.contrast_steps, [RED, BLUE], config)) as steps:
            first = await anext(steps)
        assert isinstance(first, tuple) and first[0] == 0
        return service.num_active

    with closing(InferenceService(Settings(data=fitted.data, device="cpu"), RunLoader(fitted.data, 2))) as service:
        assert asyncio.run(begin()) == 0
