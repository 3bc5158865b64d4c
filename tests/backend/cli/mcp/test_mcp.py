"""``mxd mcp`` over standard input and output, driven by the official client."""

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import numpy as np
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from mxd.backend.cli.mcp.tools import Tools, api_in_process, server_of, similar_density
from mxd.backend.settings import Settings
from mxd.trainer.inference.units import random_experts
from mxd.trainer.storage.run import Run
from tests.helpers.processes import MXD, server
from tests.helpers.runs import World

READING = {
    "find_experts_on_text", "list_experts", "list_runs", "read_evaluations", "read_expert", "read_probes", "route_text",
    "search_experts", "similar_experts", "steer", "test_expert_on_texts", "trace_circuit",
}  # fmt: skip
LABEL = "fox\u2028b\x85c\x1ce\x0bg ไทย"
"""With line breaks that do not end a message."""
WRITING = {"label_expert", "note_on_expert", "save_session"}


@pytest.fixture
def data(fitted: World, tmp_path: Path) -> Path:
    return shutil.copytree(fitted.data, tmp_path / "data")


def with_client_in_memory(work: Callable[[Client], Awaitable[None]], data: Path) -> None:
    """Run ``work`` with a client of the reading server in this process."""

    async def connected() -> None:
        settings = Settings(data=data, device="cpu")
        async with api_in_process(settings) as api, Client(server_of(Tools(api).reading)) as client:
            await work(client)

    anyio.run(connected)


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Structured answer of a tool, which must have a control and a sample size."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found: Any = result.structured_content
    assert set(found) == {"result", "control", "sample"}
    assert found["control"] and found["sample"]
    return dict(found)


def test_every_reading_tool_returns_control_and_sample(data: Path) -> None:
    expert = max(Run.load("small", data).units)
    texts = {"positive": ["the old fox", "old fox ran"], "negative": ["red blue dog", "a dog sat"]}

    async def work(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == READING
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert (await answer(client, "list_runs"))["result"]["runs"][0]["name"] == "small"
        assert (await answer(client, "search_experts", run="small", text="fox"))["sample"]["experts_of_the_run"] == 40
        assert (await answer(client, "list_experts", run="small", limit=3))["sample"]["matching"] == 40
        read = await answer(client, "read_expert", run="small", expert=expert)
        assert "«" in read["result"]["examples"][0]["text"]
        assert "mxd ablate" in read["control"]
        await answer(client, "similar_experts", run="small", expert=expert)
        await answer(client, "read_evaluations", run="small")
        await answer(client, "read_probes", run="small")
        assert (await answer(client, "route_text", run="small", text="the fox"))["sample"] == {"tokens": 8, "texts": 1}
        await answer(client, "find_experts_on_text", run="small", text="the old fox")
        tested = await answer(client, "test_expert_on_texts", run="small", expert=expert, **texts)
        low, high = tested["result"]["interval_95"]
        assert low <= tested["result"]["auroc"] <= high
        assert tested["control"]["random_experts"] > 1
        traced = await answer(client, "trace_circuit", runs=["small"], text="the old fox", check=2)
        assert traced["sample"]["nodes_ablated"] == len(traced["result"]["nodes"]) == 2

    with_client_in_memory(work, data)


def test_steering_includes_the_same_edits_of_a_random_expert(data: Path) -> None:
    expert = max(Run.load("small", data).units)
    edits = [f"{expert}:add:20@first:4"]

    async def work(client: Client) -> None:
        settings: dict[str, Any] = {"run": "small", "prompt": "the", "edits": edits, "samples": 2, "max_tokens": 6}
        one, again = [await answer(client, "steer", **settings, count=["e"]) for _ in range(2)]
        for arm in ("result", "control"):  # sums depend on which requests share a batch, texts do not
            assert one[arm]["edits"] == again[arm]["edits"]
            assert one[arm].get("steered_texts") == again[arm].get("steered_texts")
        assert one["result"]["edits"] == edits
        (control,) = one["control"]["edits"]
        assert control.endswith(":add:20@first:4")
        assert control != edits[0]
        assert one["sample"]["texts"] == len(one["control"]["steered_texts"]) == 2
        refused = await client.call_tool("steer", {**settings, "edits": ["40:ablate"]})
        assert refused.is_error
        assert "experts 0 to 39" in str(refused.content)
        assert (await client.call_tool("label_expert", {"run": "small", "expert": 1, "label": "x"})).is_error

    with_client_in_memory(work, data)


@pytest.mark.parametrize("expert", [0, 20, 500, 999])
def test_controls_are_about_as_dense_as_the_expert(expert: int) -> None:
    """In a run of 1,000 experts, each denser than the one before, of which the first is dead."""
    rows = [{"expert": number, "density": number / 1e4, "active_tokens": number} for number in range(1000)]

    async def get(path: str, **query: Any) -> Any:
        if path != "/runs/large/experts":
            return {"row": rows[int(path.rpartition("/")[2])]}
        low, high = query.get("min_density", 0), query.get("max_density", 1)
        found = [row for row in rows if low <= row["density"] <= high]
        return {"experts": (found if query["order"] == "asc" else found[::-1])[: query["limit"]]}

    drawn = anyio.run(similar_density, Mock(get=get), "large", expert, 20, 0)
    assert len(drawn) == 20
    assert max(abs(other - expert) for other in drawn) <= 41
    density_N = np.array([row["density"] for row in rows])
    assert drawn == random_experts(density_N, expert, 20), "as the server draws them, which knows all densities"
    assert {expert, 0}.isdisjoint(drawn)
    assert expert in (0, 999) or min(drawn) < expert < max(drawn)


def test_writing_tools_need_a_flag_and_reach_a_server(data: Path) -> None:
    async def work(url: str) -> None:
        # By default, clients pass on hardly any variables, so another checkout may be run.
        words = ["mcp", "--url", url, "--allow-write"]
        parameters = StdioServerParameters(command=str(MXD), args=words, env=dict(os.environ))
        async with Client(stdio_client(parameters)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == READING | WRITING
            await answer(client, "label_expert", run="small", expert=3, label=LABEL)
            await answer(client, "note_on_expert", run="small", expert=3, note="AUROC 0.9")
            await answer(client, "save_session", run="small", name="loud", prompt="the", edits=["3:add:4"])
            assert (await answer(client, "read_expert", run="small", expert=3))["result"]["label"] == LABEL

    with server(data) as (url, _):
        anyio.run(work, url)
