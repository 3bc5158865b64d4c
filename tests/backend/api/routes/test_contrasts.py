"""Contrasts over HTTP: progress and result, kinds of the indexed text, errors, cancellation."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.routes import runs
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.inference.service import InferenceService, contrast_steps
from mxd.backend.settings import Settings
from mxd.trainer.analysis.results import Contrast
from mxd.trainer.config import ContrastConfig
from tests.helpers.runs import World

KINDS = "/api/runs/small/options?kinds=true"
RED, BLUE = ["the red fox ran"] * 12, ["a very old blue dog sat"] * 12
ASKED: dict[str, Any] = {"a": {"documents": RED}, "b": {"documents": BLUE}, "min_tokens": 5, "min_units": 2}


def events(client: TestClient, **more: Any) -> list[dict[str, Any]]:
    answer = client.post("/api/runs/small/contrast", json={**ASKED, **more})
    assert answer.status_code == 200, answer.text
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]


def test_a_contrast_reports_progress_and_both_directions(live_client: TestClient) -> None:
    *steps, done = events(live_client)
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


def test_all_found_experts_are_returned_and_the_first_have_examples(
    live_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "WITH_EXAMPLES", 1)
    *_, done = events(live_client, limit=20_000)
    result = done["result"]
    for side in ("a", "b"):
        more = result[f"more_in_{side}"]
        assert len(more) == result[f"found_{side}"] > 1
        with_examples = [bool(hit["examples_a"] or hit["examples_b"]) for hit in more]
        assert with_examples == [True] + [False] * (len(more) - 1)


def test_kinds_of_the_indexed_text(live_client: TestClient, fitted: World) -> None:
    path = fitted.data / "text.jsonl"
    assert live_client.get(KINDS).json()["kinds"] == {"text": "text.jsonl", "kinds": []}
    rows = [("red", text) for text in RED] + [("blue", text) for text in BLUE[:11]]
    path.write_text("".join(json.dumps({"kind": kind, "text": text}) + "\n" for kind, text in rows))
    try:
        kinds = live_client.get(KINDS).json()["kinds"]["kinds"]
        assert [(each["kind"], each["documents"]) for each in kinds] == [("red", 12), ("blue", 11)]
        *_, done = events(live_client, a={"kind": "red"}, b={"kind": "blue"})
        assert (done["result"]["a"]["name"], done["result"]["b"]["documents"]) == ("red", 11)
        answer = live_client.post("/api/runs/small/contrast", json={**ASKED, "a": {"kind": "rod"}})
        assert answer.status_code == 400
        assert "no kind 'rod'. Did you mean 'red'?" in answer.json()["error"]["message"]
    finally:
        path.unlink()


def test_closing_ends_the_work(fitted: World) -> None:
    service = InferenceService(Settings(data=fitted.data, device="cpu"), RunLoader(fitted.data, 2))

    async def begin() -> int:
        config = ContrastConfig(min_tokens=2, min_units=2)
        async with aclosing(contrast_steps(service, "small", [RED, BLUE], config)) as steps:
            first = await anext(steps)
        assert not isinstance(first, Contrast) and first.tokens == 0
        return service.num_active

    assert asyncio.run(begin()) == 0
    service.close()
