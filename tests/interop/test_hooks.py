"""Layers in models that other programs hook, architectures of transformers, and benchmarks: the same numbers."""

from pathlib import Path

import pytest
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from scripts.architecture_matrix import CELLS, checked_apart, versions
from tests.helpers.architectures import TOLERANCE
from tests.interop.conftest import MXD, add_row, ask

LARGEST = 1e-5
"""Largest difference between logits, or between summed log-probabilities, of magnitude 10."""
CASES = [
    ("nnsight", "nnsight", "hook_with_nnsight"),
    ("saelens", "transformer-lens' TransformerBridge", "hook_with_bridge"),
    ("interp-engine", "interp-engine, eager", "hook_with_interp_engine"),
    ("lm-eval", "lm-evaluation-harness", "evaluate_with_harness"),
]


@pytest.mark.parametrize(("environment", "oracle", "script"), CASES)
def test_logits_are_those_of_the_plain_model(environment: str, oracle: str, script: str, tmp_path: Path) -> None:
    found = ask(environment, script, tmp_path)
    largest = max(value for family in found["differences"].values() for value in family.values())
    assert set(found["differences"]) == {"gpt2", "llama", "gpt-neox"}
    assert largest <= LARGEST
    uses = ", ".join(next(iter(found["differences"].values())))
    add_row(oracle, found["version"], f"ran GPT-2, Llama and GPT-NeoX with our layer: {uses}", f"{largest:.1e}")


MIN_ARCHITECTURES = 60


def test_every_cell_is_exact_or_refused() -> None:
    torch.set_num_threads(1)  # processes that are forked may not use the threads of this one
    found = {kind: checked_apart(kind, CELLS) for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    cells = {kind: answer["cells"] for kind, answer in found.items() if "cells" in answer}
    assert len(cells) >= MIN_ARCHITECTURES
    assert {kind: answer for kind, answer in found.items() if "defect" in answer} == {}
    for kind, answer in cells.items():
        assert set(answer) == set(CELLS), kind  # a skipped cell is a failure
        for name, cell in answer.items():
            assert "refused" in cell or cell.get("difference", 1) <= TOLERANCE, (kind, name, cell)
    exact = sum("difference" in cell for answer in cells.values() for cell in answer.values())
    checked = f"captured, trained, indexed, evaluated, steered and traced {len(cells)} tiny architectures"
    result = f"{exact} cells up to {TOLERANCE:.0e}, the others refused"
    add_row("transformers, forward hooks", versions()["transformers"], checked, result)


DATASET = "95_toxic_is"


def test_probes_equal_those_of_sae_probes(tmp_path: Path) -> None:
    found = ask("sae-probes", "probe_with_sae_probes", tmp_path, MXD, DATASET)
    assert found["compared"] == 6  # experts and neurons, three numbers of units
    assert found["other_units"] == 0
    assert found["difference"] == 0
    assert found["auc"] == found["expected_auc"]
    add_row("sae-probes", found["version"], "runs on the same activations", "equal scores and units")
    add_row("SAEBench", found["saebench"], "reads our benchmark", "valid, equal scores")
