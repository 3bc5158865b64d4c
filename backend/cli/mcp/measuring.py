"""Tools that run the language model: routing, detection, steering and circuits, each next to a control."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, TypeAdapter, ValidationError

from mxd.backend.cli.mcp.answers import Answer
from mxd.backend.cli.mcp.api import Api
from mxd.backend.cli.mcp.controls import as_bodies, control_edits, random_experts, shown_edits
from mxd.backend.cli.mcp.detection import peak_activations
from mxd.backend.cli.mcp.reading import ExpertId, Limit, RunName
from mxd.backend.schemas.search import RankBy
from mxd.trainer.config import Edit
from mxd.trainer.config.edit_text import CLAUSES, EDIT_FORMATS
from mxd.trainer.utils.auroc import auroc_interval, aurocs

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


class MeasuringTools:
    """Tools that compute something new and change nothing."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._peaks: OrderedDict[tuple[str, str], dict[int, float]] = OrderedDict()
        """Run and text -> largest activation of each active expert; agents test many experts on the same texts."""
        self.tools = (
            self.route_text,
            self.find_experts_on_text,
            self.test_expert_on_texts,
            self.steer,
            self.trace_circuit,
        )

    async def route_text(self, run: RunName, text: Text, top: Annotated[int, Field(ge=1, le=16)] = 4) -> Answer:
        """Show the strongest experts on each token of a text. The control is each expert's density: the share of all
        indexed tokens on which it is active."""
        routing = await self._api.post(f"/runs/{run}/routing", {"text": text})
        tokens = [
            {
                "text": token["text"],
                "experts": [[item["expert"], item["coefficient"]] for item in token["experts"][:top]],
            }
            for token in routing["tokens"]
        ]
        shown = {expert for token in tokens for expert, _ in token["experts"]}
        infos = {expert: info for expert, info in routing["experts"].items() if int(expert) in shown}
        labels = {expert: info["label"] or (info["automatic"] or {}).get("label") for expert, info in infos.items()}
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
            {
                "expert": hit["expert"],
                "label": hit["label"] or (hit["automatic"] or {}).get("label"),
                **{name: hit[name] for name in ("mass", "share", "lift", "lift_low", "lift_high")},
            }
            for hit in response["hits"]
        ]
        control = {"densities": {hit["expert"]: hit["density"] for hit in response["hits"]}}
        sample = {"tokens": len(response["tokens"]) - 1, "active_experts": response["firing"]}
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
        others = await random_experts(self._api, run, expert, CONTROL_EXPERTS, seed)
        experts = [expert, *others]
        routed = [await self._peaks_on(run, text) for text in (*positive, *negative)]
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
        chosen = _parsed(edits)
        others = await control_edits(self._api, run, chosen, seed)
        sampling = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed, "samples": samples}
        steered, control = await asyncio.gather(
            *(self._generated(run, prompt, each, sampling, count) for each in (chosen, others))
        )
        result = {"edits": shown_edits(chosen), **steered}
        shown = {name: control[name] for name in ("steered_texts", "kl", "steered_with_count") if name in control}
        return Answer(
            result=result,
            control={"edits": shown_edits(others), **shown},
            sample={"texts": samples, "steered_tokens": steered["tokens"], "control_tokens": control["tokens"]},
        )

    async def trace_circuit(
        self,
        runs: Annotated[list[str], Field(min_length=1, max_length=8, description="Runs of different layers.")],
        text: Text,
        check: Annotated[int, Field(ge=1, le=16, description="Expert nodes to ablate in the model.")] = 5,
    ) -> Answer:
        """Trace which experts and tokens produce the most probable next token, and ablate the most influential expert
        nodes in the model. The controls are random other experts that are active on the same tokens."""
        traced = await self._api.post("/circuits", {"runs": runs, "text": text})
        graph = traced["graph"]
        nodes = [node for node in graph["nodes"] if node["kind"] == "expert"][:check]
        if not nodes:
            raise ToolError("The graph has no expert nodes. Use a longer text, or runs of other layers.")
        others = await self._others(text, nodes)
        groups = [[{name: node[name] for name in ("run", "position", "expert")}] for node in (*nodes, *others)]
        measured = await self._api.post("/circuits/effects", {"runs": runs, "text": text, "groups": groups})
        names = ("run", "layer", "position", "expert", "influence")
        effects = measured["effects"]
        shown = [
            {**{name: node[name] for name in names}, "predicted": item["predicted"], "measured": item["measured"]}
            for node, item in zip(nodes, effects, strict=False)
        ]
        random_nodes = [
            {**node, "predicted": item["predicted"], "measured": item["measured"]}
            for node, item in zip(others, effects[len(nodes) :], strict=True)
        ]
        target = {name: graph["target"][name] for name in ("text", "probability")}
        result = {"target": target, "nodes": shown}
        sample = {"prompts": 1, "nodes_ablated": len(nodes), "control_nodes": len(others), "nodes": len(graph["nodes"])}
        return Answer(result=result, control={"random_active_experts": random_nodes}, sample=sample)

    async def _peaks_on(self, run: str, text: str) -> dict[int, float]:
        if (run, text) not in self._peaks:
            self._peaks[run, text] = peak_activations(await self._api.post(f"/runs/{run}/routing", {"text": text}))
            if len(self._peaks) > TEXTS_REMEMBERED:
                self._peaks.popitem(last=False)
        return self._peaks[run, text]

    async def _generated(
        self, run: str, prompt: str, edits: list[Edit], sampling: dict[str, Any], count: Sequence[str]
    ) -> dict[str, Any]:
        body = {"prompt": prompt, "edits": as_bodies(edits), "sampling": sampling}
        events = await self._api.events(f"/runs/{run}/steering", body)
        tokens = [event for event in events if event["event"] == "token"]
        texts = {name: [""] * sampling["samples"] for name in ("baseline", "steered")}
        for token in tokens:
            texts[token["variant"]][token["sample"]] += token["text"]
        steered = [token for token in tokens if token["variant"] == "steered"]
        measures: dict[str, Any] = {f"{name}_texts": each for name, each in texts.items()}
        measures |= {"kl": fmean(token["kl"] for token in steered), "tokens": len(steered)}
        if count:
            measures |= {f"{name}_with_count": _containing(each, count) for name, each in texts.items()}
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


def _parsed(edits: Sequence[str]) -> list[Edit]:
    try:
        return TypeAdapter(list[Edit]).validate_python(list(edits))
    except ValidationError as error:
        raise ToolError(f"Invalid edit: {error.errors()[0]['msg']}. Write {EDIT_FORMATS}.") from error


def _containing(texts: Sequence[str], parts: Sequence[str]) -> int:
    """Return the number of texts that contain any of ``parts``, ignoring case."""
    return sum(any(part.lower() in text.lower() for part in parts) for text in texts)
