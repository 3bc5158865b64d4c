"""Layers in models that other programs hook: the same logits inside the block, and the model restored after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import Table
from tests.interop.environments import Oracles

TOLERANCE = 1e-5
"""Largest difference between logits, or between summed log-probabilities, of magnitude 10."""
CASES = [
    ("nnsight", "nnsight", "hook_with_nnsight"),
    ("saelens", "transformer-lens' TransformerBridge", "hook_with_bridge"),
    ("interp-engine", "interp-engine, eager", "hook_with_interp_engine"),
    ("lm-eval", "lm-evaluation-harness", "evaluate_with_harness"),
]


@pytest.mark.parametrize(("environment", "oracle", "script"), CASES)
def test_logits_are_those_of_the_plain_model(
    environment: str, oracle: str, script: str, tmp_path: Path, oracles: Oracles, table: Table
) -> None:
    found = oracles.ask(environment, script, tmp_path)
    largest = max(value for family in found["differences"].values() for value in family.values())
    assert set(found["differences"]) == {"gpt2", "llama", "gpt-neox"}
    assert largest <= TOLERANCE
    uses = ", ".join(next(iter(found["differences"].values())))
    table.add(oracle, found["version"], f"ran GPT-2, Llama and GPT-NeoX with our layer: {uses}", f"{largest:.1e}")
