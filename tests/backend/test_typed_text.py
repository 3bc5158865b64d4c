"""Typed text arrives unharmed: in addresses, exports, bundles, JSON lines, event streams and answers to agents."""

import asyncio
import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import Client
from pyarrow.parquet import read_table

from mxd.backend.api.app import create_app
from mxd.backend.api.event_stream import encode
from mxd.backend.cli.main import run as mxd
from mxd.backend.cli.mcp.tools import Api, Tools, api_in_process, server_of
from mxd.backend.export.bundles.pack import portable_row, unpack
from mxd.backend.settings import Settings
from mxd.trainer.utils.display import printable, spreadsheet_text
from tests.backend.cli.mcp.test_mcp import answer
from tests.backend.conftest import printed
from tests.backend.export.bundles.conftest import packed
from tests.helpers.fuzzing import tried
from tests.helpers.runs import World

EXPERTS = 5
HOSTILE = [
    "a\u2028b\x85c\r\nd\x1ce\u2029f\x0bg\x0ch",
    '"; --, {}[]: null\\u0041 \\',
    "/runs/../?tag=a&b=c#d%2e%20+",
    "=1+1 ไทย 日本語 한국어 👩‍👩‍👧 \u202eعرب",
    "data: [DONE]\n\nevent: error",
]
# Forms drop spaces at the ends of a text.
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
TYPED = st.text(CHARACTERS, min_size=1, max_size=40).filter(lambda text: bool(text) and text == text.strip())
SOME = st.lists(TYPED, min_size=EXPERTS, max_size=EXPERTS, unique_by=str.casefold)


def annotate(client: TestClient, texts: Sequence[str]) -> list[str]:
    """Type each text into every form, for an expert of its own. Returns the ids of the saved sessions."""
    ids = []
    for expert, text in enumerate(texts):
        change = {"label": text, "note": text, "add_tags": [text]}
        assert client.patch(f"/api/runs/small/experts/{expert}", json=change).status_code == 204
        made = client.post("/api/runs/small/lists", json={"name": text, "experts": [expert]})
        steering = {"prompt": text, "edits": [{"expert": expert, "mode": "ablate"}], "sampling": {"stop": [text]}}
        saved = client.post("/api/runs/small/sessions", json={"name": text, "steering": steering})
        assert (made.status_code, saved.status_code) == (201, 201), saved.text
        note = {"note": text, "entry_notes": {expert: text}}
        assert client.patch(f"/api/runs/small/lists/{made.json()['id']}", json=note).status_code == 204
        ids.append(saved.json()["id"])
    return ids


def check_served(client: TestClient, texts: Sequence[str], sessions: Sequence[str]) -> None:
    """Every text is in the answers about its expert, and finds it from an address."""
    lists = {one["id"]: one["name"] for one in client.get("/api/runs/small/lists").json()["lists"]}
    assert sorted(lists.values()) == sorted(texts)
    for expert, (text, session) in enumerate(zip(texts, sessions, strict=True)):
        detail = client.get(f"/api/runs/small/experts/{expert}").json()
        assert (detail["row"]["label"], detail["note"], detail["row"]["tags"]) == (text, text, [text])
        tagged = client.get("/api/runs/small/experts", params={"tag": text}).json()["experts"]
        assert [row["expert"] for row in tagged] == [expert]
        number = next(number for number, name in lists.items() if name == text)
        shown = client.get(f"/api/runs/small/lists/{number}").json()
        assert (shown["list"]["note"], [entry["note"] for entry in shown["entries"]]) == (text, [text])
        saved = client.get(f"/api/sessions/{session}").json()
        steering = saved["steering"]
        assert (saved["name"], steering["prompt"], steering["sampling"]["stop"]) == (text, text, [text])


def check_files(data: Path, texts: Sequence[str]) -> None:
    """Every text is in the exports, and in what commands print."""
    for suffix in ("json", "csv", "parquet"):
        out = data.parent / suffix
        assert mxd(["export", "small", "--format", suffix, "--out", str(out), "--data", str(data)]) == 0
    labels = [row["label"] for row in json.loads((data.parent / "json" / "experts.json").read_text())[:EXPERTS]]
    assert labels == read_table(data.parent / "parquet" / "experts.parquet")["label"].to_pylist()[:EXPERTS] == texts
    with (data.parent / "csv" / "experts.csv").open(newline="") as file:
        cells = [row["label"] for row in csv.DictReader(file)][:EXPERTS]
    assert cells == [printable(spreadsheet_text(text)) for text in texts]
    for expert, text in enumerate(texts):
        shown = printed("experts", "small", str(expert), "--data", str(data))
        assert (shown["row"]["label"], shown["note"], shown["row"]["tags"]) == (text, text, [text])
        tagged = printed("experts", "small", f"--tag={text}", "--data", str(data))["experts"]
        assert [row["expert"] for row in tagged] == [expert]


async def check_agents(data: Path, texts: Sequence[str]) -> None:
    """Agents read every text, and what they write themselves is served."""
    settings = Settings(data=data, device="cpu")
    async with api_in_process(settings) as api, Client(server_of(Tools(api).reading, Tools(api).writing)) as client:
        for expert, text in enumerate(texts):
            read = (await answer(client, "read_expert", run="small", expert=expert))["result"]
            assert (read["label"], read["note"]) == (text, text)
            await answer(client, "label_expert", run="small", expert=EXPERTS + expert, label=text)
            await answer(client, "note_on_expert", run="small", expert=EXPERTS + expert, note=text)
            again = (await answer(client, "read_expert", run="small", expert=EXPERTS + expert))["result"]
            assert (again["label"], again["note"]) == (text, text)


@tried(1)
@example(HOSTILE)
@given(SOME)
def test_annotations_arrive_unharmed(fitted: World, tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("typed")
    shutil.copytree(fitted.data, folder / "data")
    with TestClient(create_app(Settings(data=folder / "data", device="cpu"))) as client:
        sessions = annotate(client, texts)
        check_served(client, texts, sessions)
    check_files(folder / "data", texts)
    here = World(folder / "data", fitted.database, fitted.language_model, fitted.text)
    opened = folder / "opened"
    unpack(packed(here, folder / "small.mxd"), opened, None)
    with TestClient(create_app(Settings(data=opened, device="cpu"))) as client:
        check_served(client, texts, sessions)
    anyio.run(check_agents, folder / "data", texts)


@tried(10)
@example(HOSTILE[0])
@example("~/notes are")
@given(TYPED)
def test_prompts_that_look_like_paths_are_packed_unharmed(prompt: str) -> None:
    settings = {"prompts": [prompt, f"/{prompt}", f"./{prompt}"]}
    row: dict[str, object] = {"command": "evaluate-steering", "settings": settings}
    assert portable_row("measurements", row) == row


@tried(2)
@example(HOSTILE[0])
@example(HOSTILE[1])
@given(TYPED)
def test_prompts_arrive_unharmed(live_client: TestClient, fitted: World, prompt: str) -> None:
    routed = live_client.post("/api/runs/small/routing", json={"text": prompt}).json()["tokens"]
    tokenizer = fitted.language_model.tokenizer
    assert tokenizer.decode([token["id"] for token in routed[1:]]) == prompt
    shown = printed("route", "small", "--data", str(fitted.data), "--device", "cpu", "--", prompt)
    assert [token["id"] for token in shown["tokens"]] == [token["id"] for token in routed]


@tried(40)
@example(HOSTILE)
@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_events_arrive_unharmed(texts: list[str]) -> None:
    sent = [{"event": "token", "text": text} for text in texts]
    body = b"".join(encode("token", event) for event in sent)

    async def received() -> list[dict[str, Any]]:
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await Api(client).events("/runs/small/steering", {})

    assert asyncio.run(received()) == sent


@pytest.mark.parametrize("name", ["small/../small", "small?x=1", "small#", "../runs/small", "small%2F"])
def test_agents_cannot_name_other_addresses(fitted: World, name: str) -> None:
    async def refused() -> bool:
        settings = Settings(data=fitted.data, device="cpu")
        async with api_in_process(settings) as api, Client(server_of(Tools(api).reading)) as client:
            return bool((await client.call_tool("read_expert", {"run": name, "expert": 0})).is_error)

    assert anyio.run(refused)
