"""A scripted agent that finds an expert for French on the tests' demo and tests it against controls, with the tools of
``mxd mcp`` alone.

    .venv/bin/mxd demo --data tests/demo                       once: it unpacks the database
    .venv/bin/python scripts/agent_finds_expert.py

The exit code is 1 if no expert passes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

from mxd.backend.cli.commands.demo import demo_database_url

TEST_DEMO = Path(__file__).resolve().parents[1] / "tests" / "demo"
FRENCH = (
    "Le petit chat dort sur la chaise de la cuisine.",
    "Nous avons mangé du pain et du fromage dans le jardin.",
    "Elle regarde par la fenêtre et attend son frère.",
    "Les enfants jouent avec leurs amis près de la rivière.",
    "Il fait froid ce matin et la neige couvre les arbres.",
    "Mon père travaille dans une grande maison au bord de la mer.",  # codespell:ignore bord
    "Vous devez prendre le train avant la nuit.",
    "La vieille femme raconte une histoire à sa fille.",  # codespell:ignore fille
)
ENGLISH = (
    "The little cat sleeps on the chair in the kitchen.",
    "We ate bread and cheese in the garden.",
    "She looks out of the window and waits for her brother.",
    "The children play with their friends near the river.",
    "It is cold this morning and snow covers the trees.",
    "My father works in a big house by the sea.",
    "You have to take the train before night.",
    "The old woman tells her daughter a story.",
)
CHOSEN_ON = "Bonjour, comment allez-vous ? Je voudrais un café et une table pour deux personnes, s'il vous plaît."
MARKERS = [" le ", " la ", " les ", " des ", " une ", " est ", " dans ", " et ", " qui ", " vous ", " nous ", " pour "]
CANDIDATES = 6
UNITS = 6


class Agent:
    """Uses the tools, and prints what it learns."""

    def __init__(self, client: Client, run: str) -> None:
        self._client = client
        self._run = run

    async def find(self) -> bool:
        """Return True if an expert detects French and writes it, and random experts do not."""
        candidates = await self._candidates()
        tested = [await self._ask("test_expert_on_texts", expert=expert, **_texts()) for expert in candidates]
        # The detection of several candidates is selected on these texts; steering is the independent test.
        ranked = sorted(tested, key=lambda one: -one["result"]["auroc"])
        for one in ranked[:3]:
            if await self._writes(one):
                return True
        return False

    async def _candidates(self) -> list[int]:
        searched = await self._ask("search_experts", text="French", limit=CANDIDATES)
        active = await self._ask("find_experts_on_text", text=CHOSEN_ON, by="lift", limit=CANDIDATES)
        hits = [hit["expert"] for answer in (searched, active) for hit in answer["result"]["hits"]]
        return list(dict.fromkeys(hits))

    async def _writes(self, tested: dict[str, Any]) -> bool:
        expert = tested["result"]["expert"]
        steered = await self._ask(
            "steer", prompt="One day, the little girl went to the", edits=[f"{expert}:add:{UNITS}"], samples=12,
            max_tokens=24, seed=1, count=MARKERS,
        )  # fmt: skip
        of_baseline = steered["result"]["baseline_with_count"]
        of_expert, of_control = steered["result"]["steered_with_count"], steered["control"]["steered_with_count"]
        low, _ = tested["result"]["interval_95"]
        measures, texts = tested["result"], steered["sample"]["texts"]
        print(f"\nExpert {expert}: AUROC {measures['auroc']:.3f} {measures['interval_95']} on {tested['sample']}")
        print(f"  random experts: {tested['control']}")
        counts = f"baseline {of_baseline}, expert {of_expert}, control {of_control}"
        print(f"Texts with French words, of {texts} each: {counts}")
        print(f"  KL {steered['result']['kl']:.3f} nats per token, control {steered['control']['kl']:.3f}")
        for name, part in (("expert", steered["result"]), ("control", steered["control"])):
            print(f"  {name} {part['edits']}: {part['steered_texts'][0]!r}")
        return low > 0.5 and of_expert >= 6 + max(of_baseline, of_control)

    async def _ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self._client.call_tool(tool, {"run": self._run, **arguments})
        if result.is_error:
            sys.exit(f"{tool}: {result.content}")
        print(f"{tool} {json.dumps(arguments, ensure_ascii=False)[:100]}")
        answer: Any = result.structured_content
        return dict(answer)


def _texts() -> dict[str, list[str]]:
    return {"positive": list(FRENCH), "negative": list(ENGLISH)}


async def main() -> int:
    """Connect, search and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=TEST_DEMO)
    parser.add_argument("--database", help="SQLAlchemy URL (default: the demo's)")
    parser.add_argument("--run", default="demo-l3-k16")
    given = parser.parse_args()
    mxd = str(Path(sys.executable).with_name("mxd"))
    database = given.database or demo_database_url(given.data)
    words = ["mcp", "--data", str(given.data), "--database", database]
    parameters = StdioServerParameters(command=mxd, args=words)
    async with Client(stdio_client(parameters)) as client:
        answer = await Agent(client, given.run).find()
    print("\nFound." if answer else "\nNo expert passed.")
    return 0 if answer else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
