"""Requests that cannot be answered: each has a status, a code and a sentence, and the next request is answered."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.helpers.databases import NUM_EXPERTS

FIRST, SMALL = "/api/runs/first", "/api/runs/small"
PROMPT, MORE, LONG = "the old fox", [{"expert": 1, "mode": "add"}], "x" * 500
ASKED: dict[str, Any] = {"prompt": PROMPT}
TWELVE = {"documents": ["the red fox ran"] * 12}
CONTRAST: dict[str, Any] = {"a": TWELVE, "b": TWELVE, "min_tokens": 5, "min_units": 2}
CIRCUIT: dict[str, Any] = {"runs": ["small"], "text": PROMPT}
FIND = {"runs": ["small"], "prompts": [PROMPT], "wanted": [" sang"], "probability": 0.1}
TOO_MANY = "small: k=5 exceeds the layer's K=4. Choose a smaller k."

READ = [
    ("/api/runs/none/experts", 404, "run-not-found"),
    ("/api/runs/second/experts", 404, "no-index"),
    ("/api/runs/second/experts/3", 404, "no-index"),
    ("/api/runs/second/experts?sort=random", 404, "no-index"),
    (f"{FIRST}/experts/{NUM_EXPERTS}", 404, "expert-not-found"),
    (f"{FIRST}/experts/{NUM_EXPERTS}/map", 404, "expert-not-found"),
    (f"{FIRST}/experts/{10**30}", 422, "invalid-request"),
    (f"{FIRST}/experts/-1", 422, "invalid-request"),
    (f"{FIRST}/experts?sort=size", 422, "invalid-request"),
    (f"{FIRST}/experts?limit=0", 422, "invalid-request"),
    (f"{FIRST}/experts?min_density=nan", 422, "invalid-request"),
    (f"{FIRST}/experts?colour=red", 422, "invalid-request"),
    (f"{FIRST}/experts?among=all", 422, "invalid-request"),
    (f"{FIRST}/experts?among=5;2", 422, "invalid-request"),
    (f"{FIRST}/experts/3/examples?seed=1&bin=0", 422, "invalid-request"),
    (f"{FIRST}/experts/3/examples?cursor=eyJ9", 400, "bad-cursor"),
    (f"{FIRST}/events?after={10**20}", 422, "invalid-request"),
    ("/api/runs/none/events", 404, "run-not-found"),
    ("/api/runs/nobody/report", 404, "run-not-found"),
    ("/api/figures/training", 400, "error"),
    ("/api/figures/density-activation?run=second", 404, "error"),
    ("/api/figures/pie?run=first", 422, "error"),
]


@pytest.mark.parametrize(("path", "status", "words"), READ)
def test_not_readable(client: TestClient, path: str, status: int, words: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert answer.json()["error"]["message"].endswith(".")


def ablated(run: str, position: int, expert: int) -> dict[str, Any]:
    return CIRCUIT | {"groups": [[{"run": run, "position": position, "expert": expert}]]}


COMPUTED: list[tuple[str, dict[str, Any], int, str]] = [
    (f"{SMALL}/routing", {"text": ""}, 400, "bad-input"),
    (f"{SMALL}/routing", {"text": LONG}, 413, "prompt-too-long"),
    (f"{SMALL}/routing", {"text": PROMPT, "k": 5}, 400, TOO_MANY),
    (f"{SMALL}/routing/predictions", {"text": PROMPT, "k": 5}, 400, TOO_MANY),
    (f"{SMALL}/routing/predictions", {"text": PROMPT, "others": ["small"]}, 400, "A run is listed twice"),
    (f"{SMALL}/routing/predictions", {"text": PROMPT, "others": ["missing"]}, 404, "run-not-found"),
    (f"{SMALL}/routing/effects", {"text": PROMPT, "position": 1, "k": 5}, 400, TOO_MANY),
    (f"{SMALL}/search/passage", {"text": PROMPT, "position": 999}, 400, "Unknown token 999."),
    (f"{SMALL}/steering", ASKED | {"k": 5}, 400, TOO_MANY),
    (f"{SMALL}/steering", {"prompt": LONG}, 413, "prompt-too-long"),
    (f"{SMALL}/steering", ASKED | {"sampling": {"max_tokens": 4000}}, 413, "prompt-too-long"),
    (f"{SMALL}/steering", ASKED | {"sampling": {"temperature": -1}}, 422, "invalid-request"),
    (f"{SMALL}/steering", ASKED | {"edits": [{"expert": 4000, "mode": "ablate"}]}, 404, "expert-not-found"),
    (f"{SMALL}/steering", ASKED | {"edits": [{"expert": 1, "mode": "ablate", "run": "x"}]}, 404, "run-not-found"),
    (f"{SMALL}/steering", ASKED | {"edits": [{"expert": 1, "mode": "more"}]}, 422, "invalid-request"),
    (f"{SMALL}/steering", ASKED | {"edits": ["3:add:4@fist:1"]}, 422, "Unknown clause: '@fist:1'"),
    (f"{SMALL}/steering/sweep", ASKED | {"edits": MORE, "k": 5}, 400, TOO_MANY),
    (f"{SMALL}/steering/sweep", ASKED | {"edits": MORE, "control": 4000}, 404, "expert-not-found"),
    (f"{SMALL}/steering/sweep", ASKED | {"edits": [{"expert": 2**63, "mode": "add"}]}, 422, "invalid-request"),
    (f"{SMALL}/steering/price", {"edits": ["3:add:1@generated"]}, 400, "with a condition cannot be measured"),
    (f"{SMALL}/steering/price", {"edits": ["missing/3:add:1"]}, 404, "missing"),
    (f"{SMALL}/steering/price", {"edits": ["99999:add:1"]}, 400, "Unknown expert 99999"),
    ("/api/runs/missing/steering/price", {"edits": ["3:add:1"]}, 404, "missing"),
    (f"{SMALL}/contrast", CONTRAST | {"a": {}}, 422, "Give documents or a kind."),
    (f"{SMALL}/contrast", CONTRAST | {"a": {"documents": ["red"]}}, 400, "Text A is too short"),
    (f"{SMALL}/contrast", CONTRAST | {"min_tokens": 5000}, 400, "No expert is active on 5000 tokens"),
    (f"{SMALL}/contrast", CONTRAST | {"tokens": 1_000_000}, 422, "tokens"),
    (f"{SMALL}/snapshot", {"kind": "expert", "expert": 10**6}, 404, "expert-not-found"),
    (f"{SMALL}/snapshot", {"kind": "expert", "expert": 10**20}, 404, "expert-not-found"),
    ("/api/runs/none/snapshot", {"kind": "expert", "expert": 3}, 404, "run-not-found"),
    ("/api/find", FIND | {"wanted": []}, 422, "at least one wanted or unwanted text"),
    ("/api/find", FIND | {"prompts": []}, 400, "prompts"),
    ("/api/find", FIND | {"runs": ["missing"]}, 404, "missing"),
    ("/api/find", FIND | {"prompts": ["the " * 2000]}, 413, "too long"),
    ("/api/circuits", CIRCUIT | {"runs": ["none"]}, 404, "Unknown run 'none'"),
    ("/api/circuits", CIRCUIT | {"text": ""}, 400, "text is empty"),
    ("/api/circuits", CIRCUIT | {"position": 12}, 400, "Unknown token position 12"),
    ("/api/circuits", CIRCUIT | {"target": {"kind": "token", "token": 999}}, 400, "Unknown target token 999"),
    ("/api/circuits", CIRCUIT | {"text": "a" * 600}, 413, "Shorten the text"),
    ("/api/circuits", CIRCUIT | {"nodes": 0}, 422, "nodes"),
    ("/api/circuits/effects", ablated("other", 1, 1), 400, "Unknown run 'other'"),
    ("/api/circuits/effects", ablated("small", 99, 1), 400, "token position 99"),
    ("/api/circuits/effects", ablated("small", 1, 10**6), 400, "active"),
]


@pytest.mark.parametrize(("path", "body", "status", "words"), COMPUTED)
def test_not_computable(live_client: TestClient, path: str, body: dict[str, Any], status: int, words: str) -> None:
    answer = live_client.post(path, json=body)
    if answer.status_code == 200:  # found after the first event of a stream
        assert "event: error" in answer.text and words in answer.text
    else:
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
        assert answer.json()["error"]["message"]
    assert live_client.post(f"{SMALL}/routing", json={"text": PROMPT}).status_code == 200
