"""Runs over HTTP, streams of their metrics, bundles, contrasts, and snapshots of what is shown."""

import asyncio
import html
import json
import re
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
from mxd.backend.api.routes.runs import contrast_steps
from mxd.backend.cli.parser import command_from
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.inference.service import ChatFormatter, InferenceService, in_steps
from mxd.backend.settings import Settings
from mxd.trainer.config.analysis import ContrastConfig
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import LOCK_FILE, Run
from mxd.trainer.storage.run_sets import weights_digest
from mxd.trainer.utils.files import exclusive_lock
from tests.backend.conftest import events
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
    for name in ("train_again_command", "index_command"):
        command_from(shlex.split(detail["run"][name])[1:])


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
    return events(client.post("/api/runs/small/contrast", json={**ASKED, **more}).raise_for_status().text)


def test_a_contrast_reports_progress_and_both_directions(live_client: TestClient) -> None:
    *steps, done = contrast_events(live_client)
    assert [step["event"] for step in steps] == ["progress"] * len(steps)
    assert steps[0]["done"] == 0 and steps[-1]["done"] == steps[-1]["total"] > 0
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
    monkeypatch.setattr("mxd.backend.api.routes.runs.WITH_EXAMPLES", 1)
    result = contrast_events(live_client, limit=20_000)[-1]["result"]
    for side in ("a", "b"):
        with_examples = [bool(hit["examples_a"] or hit["examples_b"]) for hit in result[f"more_in_{side}"]]
        assert with_examples == [True] + [False] * (result[f"found_{side}"] - 1)
        assert len(with_examples) > 1


def test_kinds_of_the_indexed_text(live_client: TestClient, fitted: World) -> None:
    path = fitted.data / "text.jsonl"
    assert live_client.get(KINDS).json()["kinds"] == {"text": "text.jsonl", "kinds": [], "min_documents": 10}
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
        async with aclosing(in_steps(service, ["small"], 1, contrast_steps, [RED, BLUE], config)) as steps:
            first = await anext(steps)
        assert isinstance(first, tuple) and first[0] == 0
        return service.num_active

    with closing(InferenceService(Settings(data=fitted.data, device="cpu"), RunLoader(fitted.data, 2))) as service:
        assert asyncio.run(begin()) == 0


PATH = "/api/runs/small/snapshot"
HOSTILE = "<script>alert(1)</script> the old fox"


def made(client: TestClient, body: dict[str, Any]) -> dict[str, str]:
    files: dict[str, str] = client.post(PATH, json=body).raise_for_status().json()
    assert "<script" not in files["html"]
    return files


def test_an_expert(live_client: TestClient, fitted: World) -> None:
    effect = {"id": 1, "text": " <b>fox", "change": 0.5}
    note = "Mean over 3 examples, less than 17 of 20 random experts."
    body = {"kind": "expert", "expert": 3, "promoted": [effect], "suppressed": [], "note": note}
    files = made(live_client, body)
    digest = weights_digest([Run.load("small", fitted.data)])
    for text in (files["html"], files["markdown"]):
        assert digest in text
        assert "mxd experts small 3 --examples 12" in text
        assert note in text
    assert "&lt;b&gt;fox +0.50" in files["html"]


def test_a_heat_map(live_client: TestClient) -> None:
    routed = live_client.post("/api/runs/small/routing", json={"text": HOSTILE}).json()
    rows = sorted(map(int, routed["experts"]))[:4][::-1]
    page = made(live_client, {"kind": "routing", "text": HOSTILE, "experts": rows})["html"]
    assert [int(number) for number in re.findall(r"<tr><th title=\"[^\"]*\"><b>(\d+)</b>", page)] == rows
    assert f"mxd route small '{HOSTILE}'" in html.unescape(page)
    for expert in rows:
        info = routed["experts"][str(expert)]
        if info["label"] is None and info["automatic"] is None and info["top_tokens"]:
            assert f"<b>{expert}</b> fires on " in page


def test_layers_and_a_difference(live_client: TestClient) -> None:
    cells = [{"column": 0, "expert": 3, "value": 1.5}, {"column": 1, "expert": 5, "value": -0.5}]
    body = {"text": HOSTILE, "k": 2, "columns": ["<b>", " fox"], "rows": [{"run": "small", "cells": cells}]}
    layers = made(live_client, {"kind": "layers", **body})
    command = f"mxd route small '{HOSTILE}' --k 2"
    assert re.findall("<pre>(.*)</pre>", layers["html"], re.S) == [html.escape(command)]
    assert "1.50 · 3" in layers["html"]
    other = made(live_client, {"kind": "difference", "second": "the cat", **body})
    commands = html.unescape(re.findall("<pre>(.*)</pre>", other["html"], re.S)[0])
    assert commands == f"{command}\nmxd route small 'the cat' --k 2"
    assert ">+1.50</span>" in other["html"]
    assert ">-0.50</span>" in other["html"]
    beyond = body | {"rows": [{"run": "small", "cells": [{"column": 9, "expert": 3, "value": 1.5}]}]}
    assert live_client.post(PATH, json={"kind": "layers", **beyond}).status_code == 422
    for run in ("none", "small' --x"):
        rows = {"rows": [{"run": run, "cells": cells}]}
        assert live_client.post(PATH, json={"kind": "layers", **body, **rows}).status_code == 404


def test_texts(live_client: TestClient) -> None:
    token = {"id": 5, "text": " <i>", "delta_log_probability": -3.0}
    sampling = {"seed": 7, "stop": [".", "-x"]}
    request = {"prompt": HOSTILE, "edits": ["3:add:2", "5:ablate@first:2"], "sampling": sampling}
    texts = {"baseline": [[token]], "steered": [[token], [token]], "kl_nats": 0.5367}
    files = made(live_client, {"kind": "steering", "request": request, **texts})
    assert files["title"].startswith("Steered with 3")
    assert files["html"].count('class="t d3"') == 2  # only complete pairs
    facts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", files["html"]))
    wanted = {"temperature": "0.7", "KL": "0.54 nats per token", "scope of edits": "all tokens"}
    assert facts.items() >= wanted.items()
    assert 'Δ log p, nats −4 <i class="d4"></i>' in files["html"]
    assert "+1 adds the 99th percentile" in files["html"]
    more = {"control": [[token]], "control_edits": ["9:add:2"], "findings": ["Side effects: KL 3.0 ± 1.3"]}
    other = made(live_client, {"kind": "steering", "request": request, **texts, **more})
    assert re.findall("<h2>(.*?)</h2>", other["html"]) == ["Baseline", "Steered", "Control, random expert 9 +2"]
    assert all("Side effects: KL 3.0 ± 1.3" in other[name] for name in ("html", "markdown"))
    command = html.unescape(re.findall("<pre>(.*)</pre>", files["html"])[0])
    edits, flags = "--edit 3:add:2 --edit 5:ablate@first:2 --stop=. --stop=-x", "--max-tokens 64 --temperature 0.7"
    rest = "--top-p 0.95 --top-k 0 --repetition-penalty 1.1 --seed 7 --samples 1"
    assert command == f"mxd steer small '{HOSTILE}' {edits} {flags} {rest}"


def test_chats_have_no_template_and_their_own_histories(
    live_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def template(*_: object) -> str:
        return "<|im_start|>user\nthe fox<|im_end|>\n<|im_start|>assistant\n"

    monkeypatch.setattr(ChatFormatter, "text", template)
    token = {"id": 5, "text": "runs", "delta_log_probability": 0.0}
    asked, again = {"role": "user", "text": "the fox"}, {"role": "user", "text": "and then"}
    steered, original = ([asked, {"role": "assistant", "text": text}, again] for text in ("a poem", "a report"))

    def page(turns: list[dict[str, str]], **more: Any) -> str:
        request = {"turns": turns, "edits": ["3:add:2"]}
        body = {"kind": "steering", "request": request, "baseline": [[token]], "steered": [[token]], **more}
        return made(live_client, body)["html"]

    shown, command = html.unescape(page([asked])).split("<pre>")
    assert "user: the fox\n\nassistant: " in shown
    assert "im_end" not in shown and "im_end" in command
    left, right = re.findall(r"<h2>.*?</div>", page(steered, original_turns=original), re.DOTALL)
    assert "a report" in left and "a poem" not in left
    assert "a poem" in right and "a report" not in right


def test_a_circuit(live_client: TestClient) -> None:
    request = {"runs": ["small"], "text": "the old fox", "nodes": 4}
    graph = live_client.post("/api/circuits", json=request).json()["graph"]
    files = made(live_client, {"kind": "circuit", "request": request, "graph": graph})
    for node in graph["nodes"][1:]:
        assert f"Layer {node['layer']}, expert {node['expert']}" in files["html"]
        assert f"Support: {-node['predicted']:+.2f} (predicted)" in files["html"]
    assert "mxd circuit small &#x27;--prompt=the old fox&#x27; --nodes 4" in files["html"]
    for changed in ({"position": 99}, {"expert": 10**20}):
        nodes = [graph["nodes"][0], graph["nodes"][1] | changed, *graph["nodes"][2:]]
        body = {"kind": "circuit", "request": request, "graph": graph | {"nodes": nodes}}
        assert live_client.post(PATH, json=body).status_code == 422
