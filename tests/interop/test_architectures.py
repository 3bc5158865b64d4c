"""The architecture matrix: every causal language model of transformers that can be built tiny."""

from __future__ import annotations

import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from scripts.architecture_matrix import checked_apart, versions
from tests.helpers.architectures import CELLS, TOLERANCE
from tests.interop.conftest import Table

MIN_ARCHITECTURES = 60


def test_every_cell_is_exact_or_refused(table: Table) -> None:
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
    table.add("transformers, forward hooks", versions()["transformers"], checked, result)
