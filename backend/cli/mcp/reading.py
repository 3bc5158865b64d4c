"""Tools that read: runs, experts, their examples, and measurements that were made before."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mxd.backend.cli.mcp.answers import NO_CONTROL, Answer
from mxd.backend.cli.mcp.api import Api
from mxd.backend.schemas import ExpertSort, Order, SimilarBy

RunName = Annotated[str, Field(description="Name of the run; list_runs names all.")]
ExpertId = Annotated[int, Field(ge=0, description="Id of the expert.")]
Limit = Annotated[int, Field(ge=1, le=50, description="Maximum number of results.")]
MEASURES = ("loss_increase", "kl_ablated", "kl_amplified", "output_share")
CONTROLS = ("random_expert", "random_loss_increase", "kl_random_expert", "kl_random_direction", "random_output_share")


class ReadingTools:
    """Tools on what is stored."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.tools = (
            self.list_runs,
            self.search_experts,
            self.list_experts,
            self.read_expert,
            self.similar_experts,
            self.read_evaluations,
            self.read_probes,
        )

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
        response = await self._api.get(f"/runs/{run}/search", text=text, limit=limit)
        hits = [
            {**_labelled(hit), "matched": hit["matched"], "example": _excerpt(hit["example"])}
            for hit in response["hits"]
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
        measured = await self._api.get(f"/runs/{run}/experts/{expert}/ablation")
        ablation = measured["ablation"]
        shown = [_marked(example) for example in page["examples"][:examples]]
        result = {**_summary(detail["row"]), "note": detail["note"], "examples": shown}
        result["effects"] = {name: ablation[name] for name in MEASURES} if ablation else None
        unmeasured = f"Effects are not measured. Run: {measured['command']}"
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
        other = (await self._api.get(f"/runs/{run}/experts/random"))["expert"]
        chance = await self._api.get(f"/runs/{run}/experts/{other}/similar", by=by, limit=limit)
        experts = [{**_labelled(one), "similarity": one["similarity"]} for one in response["experts"]]
        control = {"random_expert": other, "its_similarities": [one["similarity"] for one in chance["experts"]]}
        return Answer(result={"by": by, "experts": experts}, control=control, sample={"experts": len(experts)})

    async def read_evaluations(self, run: RunName) -> Answer:
        """Read the saved evaluations of a run: faithfulness and expert health with 95 % intervals, and warnings. The
        controls are the same layer with its experts' mixing frozen, its mean output, or nothing in its place."""
        evaluations = (await self._api.get(f"/runs/{run}/evaluations"))["evaluations"]
        shown, control = [], {}
        for one in evaluations:
            metrics = {metric["name"]: metric for metric in (*one["faithfulness"], *one["health"])}
            shown.append({"text": one["text"], "metrics": metrics, "warnings": one["warnings"]})
            control[one["text"]] = {
                name: item["value"] for name, item in metrics.items() if item["description"] == "baseline"
            }
        sample = {"evaluations": len(shown), "tokens": {one["text"]: one["tokens"] for one in evaluations}}
        none = f"Nothing is measured. Run: mxd evaluate {run}"
        return Answer(result={"evaluations": shown}, control=control or none, sample=sample)

    async def read_probes(self, run: RunName) -> Answer:
        """Read single-expert probes on labelled texts: F1 of the best expert per class with its interval, next to the
        best neuron of the MLP and the best expert of an untrained gate."""
        probes = (await self._api.get(f"/runs/{run}/probes"))["probes"]
        shown = {
            probe["labels"]: [
                {"class": item["name"], "expert": item["expert"], "top1": item["top1"], "top5": item["top5"]}
                for item in probe["classes"]
            ]
            for probe in probes
        }
        control = {
            probe["labels"]: [
                {"class": item["name"], "neuron": item["neuron"], "random_gate": item["random_gate"]}
                for item in probe["classes"]
            ]
            for probe in probes
        }
        sample = {probe["labels"]: {item["name"]: item["examples"] for item in probe["classes"]} for probe in probes}
        none = f"Nothing is measured. Run: mxd probe {run}"
        return Answer(result={"probes": shown}, control=control or none, sample={"examples": sample})


def _labelled(row: dict[str, Any]) -> dict[str, Any]:
    automatic = row["automatic"] or {}
    score = {"held_out_balanced_accuracy": automatic["balanced_accuracy"]} if automatic and not row["label"] else {}
    return {"expert": row["expert"], "label": row["label"] or automatic.get("label"), **score}


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    statistics = ("density", "active_tokens", "mean_activation", "max_activation", "p99", "entropy")
    names = (*statistics, "recurrence", "compared_runs")
    tokens = [{"text": token["text"], "share": token["share"]} for token in row["top_tokens"][:8]]
    return {**_labelled(row), **{name: row[name] for name in names}, "top_tokens": tokens}


def _marked(example: dict[str, Any]) -> dict[str, Any]:
    """Return an example as text, its active tokens in guillemets."""
    active = {position for position, *_ in example["active"]}
    tokens = [f"«{text}»" if index in active else text for index, text in enumerate(example["tokens"])]
    return {"activation": example["coefficient"], "text": "".join(tokens)}


def _excerpt(example: dict[str, Any] | None) -> str | None:
    return None if example is None else str(_marked(example)["text"])
