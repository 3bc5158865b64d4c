"""Runs over HTTP, and streams of their metrics."""

import asyncio
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from zipfile import is_zipfile

import pytest
from fastapi.testclient import TestClient
from pydantic_core import to_jsonable_python
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mxd.backend.api.app import create_app
from mxd.backend.api.event_stream import Event, Events
from mxd.backend.api.routes import runs
from mxd.backend.api.routes.server import MAX_DOWNLOADS
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import LOCK_FILE
from mxd.trainer.utils.files import exclusive_lock
from tests.helpers.databases import ACTIVE, TOKENS, metric


def test_the_newest_run_is_first(client: TestClient) -> None:
    found = client.get("/api/runs").json()["runs"]
    assert [run["name"] for run in found] == ["second", "first"]
    assert [run["indexed_tokens"] for run in found] == [None, TOKENS]
    assert found[1]["active_experts"] == ACTIVE
    assert found[0]["last_metric"]["step"] == 150
    assert found[0]["started_at"].endswith("Z")


def test_a_run_without_a_process_is_stopped(client: TestClient, made_up: Path) -> None:
    assert client.get("/api/runs/second").json()["run"]["status"] == "stopped"
    with exclusive_lock(made_up / "runs" / "second" / LOCK_FILE, "It is being trained"):
        assert client.get("/api/runs/second").json()["run"]["status"] == "training"


def test_detail_has_settings_metrics_and_the_resume_command(client: TestClient) -> None:
    detail = client.get("/api/runs/first").json()
    assert detail["config"]["optimizer.learning_rate"] == 3e-3
    assert detail["config"]["text.context_length"] == 16
    assert [point["step"] for point in detail["metrics"]] == [50, 100, 150]
    assert detail["resume_command"] == "mxd train --name first --resume"


def test_events_report_status_changes_and_each_metric_once(
    own: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.01)
    services = create_app(Settings(data=tmp_path, frontend=tmp_path)).state.services

    async def take(events: Events, count: int) -> list[Event]:
        seen: list[Event] = []
        while len(seen) < count:
            seen += await anext(events)
        return seen

    async def follow() -> list[Event]:
        events = runs.follow(services, "second", runs.look(services, "second", 100))
        seen = await take(events, 2)
        with Session(own) as session, session.begin():
            run = session.scalars(select(RunRecord).where(RunRecord.name == "second")).one()
            session.add_all([metric(run.id, 200), metric(run.id, 250)])
            run.status = "finished"
        seen += await take(events, 3)
        await events.aclose()
        return seen

    seen = [(name, to_jsonable_python(data)) for name, data in asyncio.run(follow())]
    services.database.dispose()
    assert [(name, data.get("step") or data["status"]) for name, data in seen] == [
        ("metric", 150),
        ("status", "stopped"),
        ("metric", 200),
        ("metric", 250),
        ("status", "finished"),
    ]


def test_a_bundle_is_downloaded_by_few_at_a_time(live_client: TestClient) -> None:
    path, downloads = "/api/runs/small/bundle", live_client.app.state.services.downloads  # type: ignore[attr-defined]
    with ExitStack() as others:
        for number in range(MAX_DOWNLOADS):
            assert is_zipfile(BytesIO(live_client.get(path).content)), number
            assert downloads.acquire(blocking=False), "finished downloads are not counted"
            others.callback(downloads.release)
        refused = live_client.get(path)
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
