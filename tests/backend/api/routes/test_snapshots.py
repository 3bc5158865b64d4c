"""Snapshots over HTTP: each kind has its texts, its command and the weights; what clients send is checked."""

import html
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.routes import snapshots
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import weights_digest
from tests.helpers.runs import World

PATH = "/api/runs/small/snapshot"
HOSTILE = "<script>alert(1)</script> the old fox"


def made(client: TestClient, body: dict[str, Any]) -> dict[str, str]:
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    files: dict[str, str] = answer.json()
    assert "<script" not in files["html"]
    return files


def test_an_expert(live_client: TestClient, fitted: World) -> None:
    effect = {"id": 1, "text": " <b>fox", "change": 0.5}
    files = made(live_client, {"kind": "expert", "expert": 3, "promoted": [effect], "suppressed": []})
    digest = weights_digest([Run.load("small", fitted.data)])
    for text in (files["html"], files["markdown"]):
        assert digest in text
        assert "mxd experts small 3 --examples 12" in text
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
    command = html.unescape(re.findall("<pre>(.*)</pre>", files["html"])[0])
    edits, flags = "--edit 3:add:2 --edit 5:ablate@first:2 --stop=. --stop=-x", "--max-tokens 64 --temperature 0.7"
    rest = "--top-p 0.95 --top-k 0 --repetition-penalty 1.1 --seed 7 --samples 1"
    assert command == f"mxd steer small '{HOSTILE}' {edits} {flags} {rest}"


def test_chats_have_no_template_and_their_own_histories(
    live_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def template(*_: object) -> str:
        return "<|im_start|>user\nthe fox<|im_end|>\n<|im_start|>assistant\n"

    monkeypatch.setattr(snapshots, "prompt_text", template)
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
    assert "mxd circuit small &#x27;--prompt=the old fox&#x27; --nodes 4" in files["html"]
    for changed in ({"position": 99}, {"expert": 10**20}):
        nodes = [graph["nodes"][0], graph["nodes"][1] | changed, *graph["nodes"][2:]]
        body = {"kind": "circuit", "request": request, "graph": graph | {"nodes": nodes}}
        assert live_client.post(PATH, json=body).status_code == 422
