"""Ten architectures that differ in what this program depends on: every check is exact, or refused with a sentence.

``scripts/architecture_matrix.py`` runs the same checks on all causal language models of transformers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.helpers.architectures import check

EXACT = {"capture", "train", "index", "evaluate", "steer", "circuit", "vectors", "attach"}
KINDS = {
    "gpt2": EXACT,
    "opt": EXACT,
    "falcon": EXACT,
    "gemma2": EXACT,
    "granite": EXACT,
    "deepseek_v3": EXACT,
    "olmo2": EXACT,
    "lfm2": EXACT,
    "gemma3n_text": EXACT - {"circuit", "vectors"},
    "bloom": set[str](),
}
"""Architecture -> exact checks.

They differ in transposed weights, an MLP without a module, sums in place, norms after the MLP, a residual multiplier,
dense blocks beside expert blocks, norms of outputs and convolution states. Gemma 3n shares keys and values and has
several residual streams. BLOOM's MLP has two arguments.
"""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_check_is_exact_or_refused(kind: str, tmp_path: Path) -> None:
    cells = check(kind, tmp_path)
    assert {name: cell for name, cell in cells.items() if not cell.holds} == {}
    assert {name for name, cell in cells.items() if cell.difference is not None} == KINDS[kind]
