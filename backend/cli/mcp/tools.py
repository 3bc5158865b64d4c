"""Tools of ``mxd mcp``: reading what is stored, measuring next to controls, and writing annotations.

Every answer has a result, a control and a sample size. The control of a claim about an expert is a random expert of
similar density. Tools that write are offered with ``--allow-write`` only. The server of the tools is at the end.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from statistics import fmean
from typing import Annotated, Any

import httpx2
import numpy as np
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mxd.backend.schemas.experts import ExpertSort, Order, SimilarBy
from mxd.backend.schemas.routing import RankBy
from mxd.backend.settings import Settings
from mxd.trainer.config import base
from mxd.trainer.config.steering import CLAUSES, EDIT_FORMATS, Edit
from mxd.trainer.inference.units import NEAREST, random_experts
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, NUMERIC
from mxd.trainer.utils.bootstrap import auroc_interval, aurocs

TIMEOUT_S = 600.0


class Api:
    """Requests to the API. Its errors become errors of the tool, with the same sentence."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, **query: Any) -> Any:
        """Return the answer of an endpoint; parameters that are None are left out."""
        given = {name: value for name, value in query.items() if value is not None}
        return (await self.request("GET", path, params=given)).json()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return (await self.request("POST", path, json=dict(body))).json()

    async def events(self, path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Send a body and return the data of all events of the answer."""
        text = (await self.request("POST", path, json=dict(body))).text
        # Not splitlines(), which also splits at U+2028 and others that JSON does not escape.
        lines = (line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: "))
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        if events and events[-1].get("event") == "error":
            raise ToolError(events[-1]["error"]["message"])
        return events

    async def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        try:
            response = await self._client.request(method, f"/api{path}", **more)
        except httpx2.TransportError as error:
            raise ToolError(f"The server cannot be reached: {error}. Check --url.") from error
        if response.is_error:
            try:
                message = str(response.json()["error"]["message"])
            except (ValueError, KeyError, TypeError):
                message = f"The server answered with status {response.status_code}. Check --url."
            raise ToolError(message)
        return response


@asynccontextmanager
async def api_in_process(settings: Settings) -> AsyncIterator[Api]:
    """The API on a data folder, without a port."""
    from mxd.backend.api.app import create_app

    app = create_app(settings.model_copy(update={"access": "open"}))
    transport = httpx2.ASGITransport(app=app)
    client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=TIMEOUT_S)
    async with app.router.lifespan_context(app), client:
        yield Api(client)


@asynccontextmanager
async def api_of_server(url: str, token: str) -> AsyncIterator[Api]:
    """The API of a running server; an empty token is not sent."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_S) as client:
        yield Api(client)


# Names stand in addresses, so what is not a name must not be sent.
RunName = Annotated[base.RunName, Field(description="Name of the run; list_runs names all.")]
ExpertId = Annotated[int, Field(ge=0, description="Id of the expert.")]
Limit = Annotated[int, Field(ge=1, le=50, description="Maximum number of results.")]
MEASURES = ("loss_increase", "kl_ablated", "kl_amplified", "output_share")
CONTROLS = ("random_expert", "random_loss_increase", "kl_random_expert", "kl_random_direction", "random_output_share")


Text = Annotated[str, Field(min_length=1, max_length=20_000)]
Texts = Annotated[list[Text], Field(min_length=2, max_length=50)]
EditTexts = Annotated[
    list[str],
    Field(
        min_length=1,
        max_length=8,
        description=f"{EDIT_FORMATS}; one unit is the expert's 99th percentile. Conditions may follow: {CLAUSES}.",
    ),
]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
CONTROL_EXPERTS = 20
TEXTS_REMEMBERED = 200


class Tools:
    """Tools on what is stored, tools that compute something new, and tools that store what was found."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._peaks: OrderedDict[tuple[str, str], dict[int, float]] = OrderedDict()
        """Run and text -> largest activation of each active expert; agents test many experts on the same texts."""
        self.reading = (
            *(self.list_runs, self.search_experts, self.list_experts, self.read_expert, self.similar_experts),
            *(self.read_evaluations, self.read_probes, self.route_text, self.find_experts_on_text),
            *(self.test_expert_on_texts, self.steer, self.trace_circuit),
        )
        self.writing = self.label_expert, self.note_on_expert, self.save_session

    async def list_runs(self) -> Answer:
        """List all trained runs with language model, layer, number of experts and indexed tokens. Start here."""
        runs = (await self._api.get("/runs"))["runs"]
        names = ("name", "status", "language_model", "layer", "method", "num_experts", "k", "indexed_tokens")
        shown = [{name: run[name] for name in names if name in run} for run in runs]
        return Answer(result={"runs": shown}, control=NO_CONTROL, sample={"runs": len(shown)})

    async def search_experts(
        self, run: RunName, text: Annotated[str, Field(min_length=1, max_length=200)], limit: Limit = 10
    ) -> Answer:
        """Search experts by number, then by label, top token and example text. A match is a candidate, not evidence:
        confirm it with test_expert_on_texts and steer."""
        found = await self._api.get("/search", runs=run, text=text, limit=limit)
        hits = [
            {**_labelled(hit), "matched": hit["matched"], "example": hit["example"] and _marked(hit["example"])["text"]}
            for hit in found["hits"]
        ]
        control = "No control: a text match. test_expert_on_texts compares an expert with a random one."
        total = (await self._api.get(f"/runs/{run}"))["run"]["num_experts"]
        return Answer(result={"hits": hits}, control=control, sample={"hits": len(hits), "experts_of_the_run": total})

    async def list_experts(
        self,
        run: RunName,
        sort: ExpertSort = "max_activation",
        order: Order = "desc",
        token: Annotated[str | None, Field(description="Only experts with this top token.")] = None,
        min_density: Annotated[float | None, Field(ge=0, le=1)] = None,
        max_density: Annotated[float | None, Field(ge=0, le=1)] = None,
        limit: Limit = 20,
    ) -> Answer:
        """List experts in the order of a statistic, with density, label and top tokens."""
        query = {"sort": sort, "order": order, "token": token, "limit": limit}
        page = await self._api.get(f"/runs/{run}/experts", min_density=min_density, max_density=max_density, **query)
        rows = [_summary(row) for row in page["experts"]]
        sample = {"matching": page["matching"], "experts_of_the_run": page["total"]}
        return Answer(result={"experts": rows}, control=NO_CONTROL, sample=sample)

    async def read_expert(
        self, run: RunName, expert: ExpertId, examples: Annotated[int, Field(ge=0, le=20)] = 5
    ) -> Answer:
        """Read one expert: label with its held-out score, statistics, top examples with «active»
        tokens, and its measured effects next to those of a random expert and of a random direction."""
        detail = await self._api.get(f"/runs/{run}/experts/{expert}")
        page = await self._api.get(f"/runs/{run}/experts/{expert}/examples", bin=0, limit=max(examples, 1))
        ablation = detail["ablation"]
        shown = [_marked(example) for example in page["examples"][:examples]]
        result = {**_summary(detail["row"]), "note": detail["note"], "examples": shown}
        result["effects"] = {name: ablation[name] for name in MEASURES} if ablation else None
        unmeasured = f"Effects are not measured. Run: mxd ablate {run}"
        control = {name: ablation[name] for name in CONTROLS} if ablation else unmeasured
        sample = {
            "active_tokens": detail["row"]["active_tokens"],
            "examples_shown": len(shown),
            "examples_measured": ablation["examples"] if ablation else 0,
        }
        return Answer(result=result, control=control, sample=sample)

    async def similar_experts(self, run: RunName, expert: ExpertId, by: SimilarBy = "gate", limit: Limit = 8) -> Answer:
        """Find the experts most similar to one: by gate direction, output scaling, tokens or co-activation."""
        response = await self._api.get(f"/runs/{run}/experts/{expert}/similar", by=by, limit=limit)
        drawn = await self._api.get(f"/runs/{run}/experts", among="active", sort="random", limit=1)
        other = drawn["experts"][0]["expert"]
        chance = await self._api.get(f"/runs/{run}/experts/{other}/similar", by=by, limit=limit)
        experts = [{**_labelled(one), "similarity": one["similarity"]} for one in response["experts"]]
        control = {"random_expert": other, "its_similarities": [one["similarity"] for one in chance["experts"]]}
        return Answer(result={"by": by, "experts": experts}, control=control, sample={"experts": len(experts)})

    async def read_evaluations(self, run: RunName) -> Answer:
        """Read the saved evaluations of a run: faithfulness and expert health with 95 % intervals, and warnings. The
        controls are the same layer with its experts' mixing frozen, its mean output, or nothing in its place."""
        health, faithfulness = [await self._sections(run, chapter) for chapter in ("health", "faithfulness")]
        tables = [table for section in (*faithfulness, *health) for table in section["tables"]]
        shown: dict[str, Any] = {}
        control: dict[str, Any] = {}
        for table in tables:
            for row in table["rows"]:
                into = control if row["is_baseline"] else shown
                for column, cell in zip(table["columns"], row["cells"], strict=True):
                    into.setdefault(column["key"], {})[row["key"]] = {"meaning": row["detail"], **_number(cell)}
        result = {"evaluations": shown, "warnings": [warning for section in health for warning in section["warnings"]]}
        sample = {"evaluations": len(shown), "newest": [text for section in faithfulness for text in section["intro"]]}
        none = f"Nothing is measured. Run: mxd evaluate {run}"
        return Answer(result=result, control=control or none, sample=sample)

    async def read_probes(self, run: RunName) -> Answer:
        """Read single-expert probes on labelled texts: scores of the best expert per class with their intervals, next
        to the best neuron of the MLP and the best expert of an untrained gate."""
        shown: dict[str, Any] = {}
        control: dict[str, Any] = {}
        sample: dict[str, Any] = {}
        for section in await self._sections(run, "probing"):
            for table in section["tables"]:
                for row in table["rows"]:
                    sample.setdefault(section["title"], {})[row["title"]] = row["detail"]
                    for column, cell in zip(table["columns"], row["cells"], strict=True):
                        into = shown if column["key"].startswith("experts") else control
                        scores = into.setdefault(section["title"], {}).setdefault(row["title"], {})
                        scores[f"{column['title']}, {table['title']}"] = _number(cell)
        none = f"Nothing is measured. Run: mxd probe {run}"
        return Answer(result={"probes": shown}, control=control or none, sample={"examples": sample})

    async def _sections(self, run: str, chapter: str) -> list[dict[str, Any]]:
        chapters = (await self._api.get(f"/runs/{run}/report"))["chapters"]
        return [section for one in chapters if one["key"] == chapter for section in one["sections"]]

    async def route_text(self, run: RunName, text: Text, top: Annotated[int, Field(ge=1, le=16)] = 4) -> Answer:
        """Show the strongest experts on each token of a text. The control is each expert's density: the share of all
        indexed tokens on which it is active."""
        routing = await self._api.post(f"/runs/{run}/routing", {"text": text})
        strongest = (token["experts"][:top] for token in routing["tokens"])
        pairs = ([[item["expert"], item["activation"]] for item in items] for items in strongest)
        tokens = [{"text": token["text"], "experts": its} for token, its in zip(routing["tokens"], pairs, strict=True)]
        shown = {expert for token in tokens for expert, _ in token["experts"]}
        infos = {expert: info for expert, info in routing["experts"].items() if int(expert) in shown}
        labels = {expert: _label(info) for expert, info in infos.items()}
        control = {"densities": {expert: info["density"] for expert, info in infos.items()}}
        return Answer(
            result={"tokens": tokens, "labels": labels}, control=control, sample={"tokens": len(tokens), "texts": 1}
        )

    async def find_experts_on_text(self, run: RunName, text: Text, by: RankBy = "lift", limit: Limit = 10) -> Answer:
        """Find the experts that are active on a text. lift is the share of its tokens on which an expert is active,
        divided by the expert's density, which is the control. One text is weak evidence: use test_expert_on_texts."""
        body = {"text": text, "by": by, "limit": limit}
        response = await self._api.post(f"/runs/{run}/search/passage", body)
        hits = [
            {"expert": hit["expert"], "label": _label(hit)}
            | {name: hit[name] for name in ("mass", "share", "lift", "lift_low", "lift_high")}
            for hit in response["hits"]
        ]
        control = {"densities": {hit["expert"]: hit["density"] for hit in response["hits"]}}
        tokens = sum(not token["start"] for token in response["tokens"])
        sample = {"tokens": tokens, "active_experts": response["firing"]}
        return Answer(result={"by": by, "hits": hits}, control=control, sample=sample)

    async def test_expert_on_texts(
        self,
        run: RunName,
        expert: ExpertId,
        positive: Annotated[Texts, Field(description="Texts with the concept.")],
        negative: Annotated[Texts, Field(description="Comparable texts without the concept.")],
        seed: Seed = 0,
    ) -> Answer:
        """Test whether an expert detects a concept: AUROC of its largest activation on texts with and without the
        concept, with a 95 % interval, next to up to 20 random experts of similar density on the same texts. Use texts
        that were not used to choose the expert."""
        others = await similar_density(self._api, run, expert, CONTROL_EXPERTS, seed)
        experts = [expert, *others]
        routed = []
        for text in (*positive, *negative):
            if (run, text) not in self._peaks:
                self._peaks[run, text] = peak_activations(await self._api.post(f"/runs/{run}/routing", {"text": text}))
                if len(self._peaks) > TEXTS_REMEMBERED:
                    self._peaks.popitem(last=False)
            routed.append(self._peaks[run, text])
        peaks_TE = np.array([[peaks.get(each, 0.0) for each in experts] for peaks in routed])
        positive_PE, negative_NE = peaks_TE[: len(positive)], peaks_TE[len(positive) :]
        scores = aurocs(positive_PE, negative_NE).tolist()
        interval = auroc_interval(positive_PE[:, 0], negative_NE[:, 0], seed=seed)
        result = {
            "expert": expert,
            "auroc": scores[0],
            "interval_95": [interval.low, interval.high],
            "active_on_positive": int((positive_PE[:, 0] > 0).sum()),
            "active_on_negative": int((negative_NE[:, 0] > 0).sum()),
        }
        control = {
            "random_experts": len(others),
            "mean_auroc": fmean(scores[1:]),
            "largest_auroc": max(scores[1:]),
            "at_least_as_good": sum(score >= scores[0] for score in scores[1:]),
        }
        return Answer(result=result, control=control, sample={"positive": len(positive), "negative": len(negative)})

    async def steer(
        self,
        run: RunName,
        prompt: Annotated[str, Field(max_length=20_000)],
        edits: EditTexts,
        samples: Annotated[int, Field(ge=1, le=16)] = 4,
        max_tokens: Annotated[int, Field(ge=1, le=200)] = 32,
        temperature: Annotated[float, Field(ge=0, le=2)] = 0.7,
        seed: Seed = 0,
        count: Annotated[list[str], Field(max_length=200, description="Texts to look for in the new texts.")] = [],  # noqa: B006
    ) -> Answer:
        """Continue a prompt without edits (baseline), with edits (steered) and, as a control, with the same edits of
        random experts of similar density in their own units. All share their random numbers. Reports the KL divergence
        from the baseline per token, and in how many texts any of ``count`` occurs."""
        try:
            chosen = TypeAdapter(list[Edit]).validate_python(list(edits))
        except ValidationError as error:
            raise ToolError(f"Invalid edit: {error.errors()[0]['msg']}. Write {EDIT_FORMATS}.") from error
        others = await control_edits(self._api, run, chosen, seed)
        sampling = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed, "samples": samples}
        steered, control = await asyncio.gather(
            *(self._generated(run, prompt, each, sampling, count) for each in (chosen, others))
        )
        result = {"edits": list(map(str, chosen)), **steered}
        shown = {name: control[name] for name in ("steered_texts", "kl", "steered_with_count") if name in control}
        return Answer(
            result=result,
            control={"edits": list(map(str, others)), **shown},
            sample={"texts": samples, "steered_tokens": steered["tokens"], "control_tokens": control["tokens"]},
        )

    async def trace_circuit(
        self,
        runs: Annotated[list[str], Field(min_length=1, max_length=8, description="Runs of different layers.")],
        text: Text,
        check: Annotated[int, Field(ge=1, le=16, description="Expert nodes to ablate in the model.")] = 5,
    ) -> Answer:
        """Trace which experts produce the most probable next token, and ablate those with the largest predicted effects
        in the model. The controls are random other experts that are active on the same tokens."""
        traced = await self._api.post("/circuits", {"runs": runs, "text": text, "nodes": check})
        graph = traced["graph"]
        nodes = [node for node in graph["nodes"] if node["kind"] == "expert"]
        if not nodes:
            raise ToolError("No expert is active. Use a longer text, or runs of other layers.")
        others = await self._others(text, nodes)
        groups = [[{name: node[name] for name in ("run", "position", "expert")}] for node in (*nodes, *others)]
        request = {"runs": runs, "text": text, "target": graph["target"], "groups": groups}
        measured = [effect["target"] for effect in await self._api.post("/circuits/effects", request)]
        names = ("run", "layer", "position", "expert", "predicted")
        shown, random_nodes = (
            [
                {name: node[name] for name in names if name in node} | {"measured": change}
                for node, change in zip(some, changes, strict=True)
            ]
            for some, changes in ((nodes, measured[: len(nodes)]), (others, measured[len(nodes) :]))
        )
        result = {"target": graph["label"], "value": graph["value"], "nodes": shown}
        sample = {"prompts": 1, "nodes_ablated": len(nodes), "control_nodes": len(others)}
        sample["active_experts"] = graph["active"]
        return Answer(result=result, control={"random_active_experts": random_nodes}, sample=sample)

    async def _generated(
        self, run: str, prompt: str, edits: list[Edit], sampling: dict[str, Any], count: Sequence[str]
    ) -> dict[str, Any]:
        bodies = [edit.model_dump(mode="json") for edit in edits]
        body = {"prompt": prompt, "edits": bodies, "sampling": sampling}
        events = await self._api.events(f"/runs/{run}/steering", body)
        tokens = [event for event in events if event["event"] == "token"]
        texts = {name: [""] * sampling["samples"] for name in ("baseline", "steered")}
        for token in tokens:
            texts[token["variant"]][token["sample"]] += token["text"]
        steered = [token for token in tokens if token["variant"] == "steered"]
        measures: dict[str, Any] = {f"{name}_texts": each for name, each in texts.items()}
        measures |= {"kl": fmean(token["kl"] for token in steered), "tokens": len(steered)}
        if count:
            measures |= {
                f"{name}_with_count": sum(any(part.lower() in text.lower() for part in count) for text in each)
                for name, each in texts.items()
            }
        return measures

    async def _others(self, text: str, nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a random other active expert for each node, on the same token of the same run."""
        routings = {
            run: await self._api.post(f"/runs/{run}/routing", {"text": text}) for run in {node["run"] for node in nodes}
        }
        avoided = {(node["run"], node["position"], node["expert"]) for node in nodes}
        generator, others = np.random.default_rng(0), []
        for node in nodes:
            active = [item["expert"] for item in routings[node["run"]]["tokens"][node["position"]]["experts"]]
            free = [expert for expert in active if (node["run"], node["position"], expert) not in avoided]
            if free:
                expert = int(generator.choice(free))
                avoided.add((node["run"], node["position"], expert))
                others.append({"run": node["run"], "position": node["position"], "expert": expert})
        return others

    async def label_expert(
        self, run: RunName, expert: ExpertId, label: Annotated[str, Field(min_length=1, max_length=200)]
    ) -> Answer:
        """Set the label of an expert, in place of an earlier one."""
        await self._api.request("PATCH", f"/runs/{run}/experts/{expert}", json={"label": label})
        return Answer(result={"expert": expert, "label": label}, control=NO_CONTROL, sample={"labels": 1})

    async def note_on_expert(
        self, run: RunName, expert: ExpertId, note: Annotated[str, Field(min_length=1, max_length=10_000)]
    ) -> Answer:
        """Set the note on an expert, such as the evidence for its label, in place of an earlier one."""
        await self._api.request("PATCH", f"/runs/{run}/experts/{expert}", json={"note": note})
        return Answer(result={"expert": expert, "note": note}, control=NO_CONTROL, sample={"notes": 1})

    async def save_session(
        self,
        run: RunName,
        name: Annotated[str, Field(min_length=1, max_length=200)],
        prompt: Annotated[str, Field(max_length=20_000)],
        edits: Annotated[list[str], Field(max_length=64)],
        seed: Annotated[int, Field(ge=0, lt=2**31)] = 0,
    ) -> Answer:
        """Save prompt, edits and seed as a session that people can open in the dashboard."""
        steering = {"prompt": prompt, "edits": edits, "sampling": {"seed": seed}}
        saved = await self._api.post(f"/runs/{run}/sessions", {"name": name, "steering": steering})
        result = {"id": saved["id"], "page": f"/s/{saved['id']}"}
        return Answer(result=result, control=NO_CONTROL, sample={"sessions": 1})


def _number(cell: dict[str, Any] | None) -> dict[str, Any]:
    """Return the value and the ends of its interval; no value if it was not measured."""
    return (
        {name: cell[name] for name in ("value", "low", "high", "note") if cell[name] != ""} if cell else {"value": None}
    )


def _label(row: dict[str, Any]) -> str | None:
    return row["label"] or (row["automatic"] or {}).get("label")


def _labelled(row: dict[str, Any]) -> dict[str, Any]:
    automatic = row["automatic"]
    score = {"held_out_balanced_accuracy": automatic["balanced_accuracy"]} if automatic and not row["label"] else {}
    return {"expert": row["expert"], "label": _label(row), **score}


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    names = [column.key for column in EXPERT_COLUMNS if column.kind in NUMERIC and column.measured_by != "ablate"]
    tokens = [{"text": token["text"], "share": token["share"]} for token in row["top_tokens"][:8]]
    return {**_labelled(row), **{name: row[name] for name in names}, "top_tokens": tokens}


def _marked(example: dict[str, Any]) -> dict[str, Any]:
    """Return an example as text, its active tokens in guillemets."""
    active = {position for position, *_ in example["active"]}
    tokens = [f"«{text}»" if index in active else text for index, text in enumerate(example["tokens"])]
    return {"activation": example["activation"], "text": "".join(tokens)}


NO_CONTROL = "No control: the answer lists what is stored and claims no effect."


class Answer(BaseModel):
    """Answer of a tool."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    result: dict[str, Any]
    """The answer itself."""
    control: dict[str, Any] | str
    """The same measure on a control, such as a random expert; a sentence where there is no measure."""
    sample: dict[str, Any]
    """Number of tokens, examples or texts that the answer rests on."""


def peak_activations(routing: Mapping[str, Any]) -> dict[int, float]:
    """Return the largest activation of each active expert on a routed text, without the start token."""
    peaks: dict[int, float] = {}
    for token in routing["tokens"]:
        for routed in () if token["start"] else token["experts"]:
            peaks[routed["expert"]] = max(peaks.get(routed["expert"], 0.0), routed["activation"])
    return peaks


async def similar_density(
    api: Api, run: str, expert: int, count: int, seed: int, avoided: frozenset[int] = frozenset()
) -> list[int]:
    """Return up to ``count`` other experts, as ``random_experts``, which gets the densities near that of ``expert``.

    Raises ToolError if the run has no other active expert.
    """
    density = (await api.get(f"/runs/{run}/experts/{expert}"))["row"]["density"]
    known, near = {expert: density}, NEAREST + 2 * count + len(avoided)
    for order, bounds in (("asc", {"min_density": max(density, 1e-9)}), ("desc", {"max_density": density})):
        page = await api.get(f"/runs/{run}/experts", sort="density", order=order, limit=near, **bounds)
        known |= {row["expert"]: row["density"] for row in page["experts"]}
    density_N = np.zeros(max(known) + 1)
    density_N[list(known)] = list(known.values())
    if not (drawn := random_experts(density_N, expert, count, seed, avoided)):
        raise ToolError(f"Run '{run}' has no other active expert that could serve as a control.")
    return drawn


async def control_edits(api: Api, run: str, edits: list[Edit], seed: int) -> list[Edit]:
    """Return the same edits of random experts of similar density, in those experts' own units."""
    chosen: dict[tuple[str, int], int] = {}
    for edit in edits:
        name = edit.run or run
        avoided = frozenset(other.expert for other in edits if (other.run or run) == name)
        if (name, edit.expert) not in chosen:
            taken = frozenset(expert for (other, _), expert in chosen.items() if other == name)
            (drawn,) = await similar_density(api, name, edit.expert, 1, seed, avoided | taken)
            chosen[name, edit.expert] = drawn
    return [edit.model_copy(update={"expert": chosen[edit.run or run, edit.expert]}) for edit in edits]


INSTRUCTIONS = """\
MxD Explorer: experts of mixtures of decoders that replace MLPs of language models.
Every answer has three parts: result, control (the same measure on a random expert or another baseline) and sample (its
size). Report all three. A label or a search hit is a hypothesis. To test one: test_expert_on_texts with texts of your
own, then steer, and compare both with their controls."""
READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
WRITING = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


def server_of(reading: Sequence[Any], writing: Sequence[Any] = ()) -> MCPServer:
    """Return a server with tools that change nothing, and tools that write."""
    server: MCPServer = MCPServer(
        "mxd-explorer", instructions=INSTRUCTIONS, version=version("mxd-explorer"), log_level="ERROR"
    )
    for tools, hints in ((reading, READ_ONLY), (writing, WRITING)):
        for tool in tools:
            server.add_tool(tool, annotations=hints)
    return server


async def serve_stdio(api: AbstractAsyncContextManager[Api], allow_write: bool) -> None:
    """Answer on standard input and output until the client closes them."""
    async with api as opened:
        tools = Tools(opened)
        await server_of(tools.reading, tools.writing if allow_write else ()).run_stdio_async()
