"""A scripted agent that finds an expert for a concept and tests it against controls, with tools of ``mxd mcp`` alone.

    .venv/bin/mxd demo                                              once: it unpacks the database
    .venv/bin/python scripts/agent_finds_expert.py                  texts that say "we", on the bundled demo
    .venv/bin/python scripts/agent_finds_expert.py French --data tests/demo    on the demo of the tests

The exit code is 1 if no expert passes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

from mxd.backend.database.demo import demo_database_url
from mxd.trainer.config.base import SAMPLE


@dataclass(frozen=True)
class Concept:
    """Concept that an expert detects and writes, and its texts."""

    run: str
    search: str
    """Words to search labels, tokens and examples for."""
    chosen_on: str
    """Text whose active experts are candidates too."""
    positive: tuple[str, ...]
    """Texts with the concept."""
    negative: tuple[str, ...]
    """The same texts without it."""
    prompt: str
    """Text to continue, without the concept."""
    markers: tuple[str, ...]
    """Strings that continuations with the concept contain."""


FRENCH_TEXTS = (
    "Le petit chat dort sur la chaise de la cuisine.",
    "Nous avons mangé du pain et du fromage dans le jardin.",
    "Elle regarde par la fenêtre et attend son frère.",
    "Les enfants jouent avec leurs amis près de la rivière.",
    "Il fait froid ce matin et la neige couvre les arbres.",
    "Mon père travaille dans une grande maison au bord de la mer.",  # codespell:ignore bord
    "Vous devez prendre le train avant la nuit.",
    "La vieille femme raconte une histoire à sa fille.",  # codespell:ignore fille
)
ENGLISH_TEXTS = (
    "The little cat sleeps on the chair in the kitchen.",
    "We ate bread and cheese in the garden.",
    "She looks out of the window and waits for her brother.",
    "The children play with their friends near the river.",
    "It is cold this morning and snow covers the trees.",
    "My father works in a big house by the sea.",
    "You have to take the train before night.",
    "The old woman tells her daughter a story.",
)
WE_TEXTS = (
    "After dinner we walked along the river.",
    "Last summer we painted the old house.",
    "In the morning we packed the bags and left.",
    "When the rain stopped, we went outside.",
    "Every Sunday we cook for the neighbours.",
    "Before the meeting we read the report.",
    "On the hill we could see the whole town.",
    "At the station we waited for an hour.",
)
CONCEPTS = {
    "we": Concept(
        run="smollm2-l22",
        search="we",
        chosen_on="We think that we should do this together, because we are a team and we know what we want.",
        positive=WE_TEXTS,
        negative=tuple(text.replace(" we ", " he ") for text in WE_TEXTS),
        prompt="It was a long day, and in the evening",
        markers=(" we ", " our ", " us ", " We "),
    ),
    "French": Concept(
        run="demo-l3-k16",
        search="French",
        chosen_on="Bonjour, comment allez-vous ? Je voudrais un café et une table pour deux, s'il vous plaît.",
        positive=FRENCH_TEXTS,
        negative=ENGLISH_TEXTS,
        prompt="One day, the little girl went to the",
        markers=(
            " le ",
            " la ",
            " les ",
            " des ",
            " une ",
            " est ",
            " dans ",
            " et ",
            " qui ",
            " vous ",
            " nous ",
            " pour ",
        ),
    ),
}
CANDIDATES = 6
UNITS = 6


class Agent:
    """Uses the tools, and prints what it learns."""

    def __init__(self, client: Client, concept: Concept) -> None:
        self._client = client
        self._concept = concept

    async def find(self) -> bool:
        """Return True if an expert detects the concept and writes it, and random experts do not."""
        candidates = await self._candidates()
        texts = {"positive": list(self._concept.positive), "negative": list(self._concept.negative)}
        tested = [await self._ask("test_expert_on_texts", expert=expert, **texts) for expert in candidates]
        # The detection of several candidates is selected on these texts; steering is the independent test.
        ranked = sorted(tested, key=lambda one: -one["result"]["auroc"])
        for one in ranked[:3]:
            if await self._writes(one):
                return True
        return False

    async def _candidates(self) -> list[int]:
        searched = await self._ask("search_experts", text=self._concept.search, limit=CANDIDATES)
        active = await self._ask("find_experts_on_text", text=self._concept.chosen_on, by="lift", limit=CANDIDATES)
        hits = [hit["expert"] for answer in (searched, active) for hit in answer["result"]["hits"]]
        return list(dict.fromkeys(hits))

    async def _writes(self, tested: dict[str, Any]) -> bool:
        expert = tested["result"]["expert"]
        steered = await self._ask(
            "steer", prompt=self._concept.prompt, edits=[f"{expert}:add:{UNITS}"], samples=12, max_tokens=24, seed=1,
            count=list(self._concept.markers),
        )  # fmt: skip
        of_baseline = steered["result"]["baseline_with_count"]
        of_expert, of_control = steered["result"]["steered_with_count"], steered["control"]["steered_with_count"]
        low, _ = tested["result"]["interval_95"]
        measures, texts = tested["result"], steered["sample"]["texts"]
        print(f"\nExpert {expert}: AUROC {measures['auroc']:.3f} {measures['interval_95']} on {tested['sample']}")
        print(f"  random experts: {tested['control']}")
        counts = f"baseline {of_baseline}, expert {of_expert}, control {of_control}"
        print(f"Texts with the words, of {texts} each: {counts}")
        print(f"  KL {steered['result']['kl']:.3f} nats per token, control {steered['control']['kl']:.3f}")
        for name, part in (("expert", steered["result"]), ("control", steered["control"])):
            print(f"  {name} {part['edits']}: {part['steered_texts'][0]!r}")
        return bool(low > 0.5 and of_expert >= 6 + max(of_baseline, of_control))

    async def _ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self._client.call_tool(tool, {"run": self._concept.run, **arguments})
        if result.is_error:
            sys.exit(f"{tool}: {result.content}")
        print(f"{tool} {json.dumps(arguments, ensure_ascii=False)[:100]}")
        answer: Any = result.structured_content
        return dict(answer)


async def main() -> int:
    """Connect, search and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("concept", nargs="?", choices=CONCEPTS, default="we")
    parser.add_argument("--data", type=Path, default=SAMPLE)
    parser.add_argument("--database", help="SQLAlchemy URL (default: the demo's)")
    given = parser.parse_args()
    mxd = str(Path(sys.executable).with_name("mxd"))
    database = given.database or demo_database_url(given.data)
    words = ["mcp", "--data", str(given.data), "--database", database]
    parameters = StdioServerParameters(command=mxd, args=words)
    async with Client(stdio_client(parameters)) as client:
        answer = await Agent(client, CONCEPTS[given.concept]).find()
    print("\nFound." if answer else "\nNo expert passed.")
    return 0 if answer else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
