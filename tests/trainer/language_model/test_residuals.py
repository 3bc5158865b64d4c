"""Forward passes that start at a block equal whole ones."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.language_model import residuals
from mxd.trainer.language_model.residuals import Residuals
from tests.helpers.language_models import CONFIGS, tiny_language_model

IDS_2T = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 1]])


@pytest.mark.parametrize("family", CONFIGS)
def test_continued_passes_equal_whole_ones(family: str) -> None:
    language_model = tiny_language_model(family)
    expected = language_model.logits(IDS_2T)
    stored = Residuals(language_model)
    for layer in (0, 2, stored.behind_all):
        for _ in range(2):
            with stored.continued(layer, 0, IDS_2T, copies=2) as ids_RT:
                actual = language_model.logits(ids_RT)
            torch.testing.assert_close(actual, expected.repeat_interleave(2, dim=0), rtol=1e-4, atol=1e-4)
        # Falcon's blocks return tuples, so its passes start at the embedding.
        assert stored.can_continue(layer) == (family != "falcon" or layer == 0)
    torch.testing.assert_close(language_model.logits(IDS_2T), expected)


def test_streams_beyond_the_memory_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    language_model = tiny_language_model("llama")
    stored = Residuals(language_model)
    first = stored.at(1, 0, IDS_2T)
    assert stored.has(1, 0, 2)
    monkeypatch.setattr(residuals, "MAX_BYTES", 0)
    torch.testing.assert_close(Residuals(language_model).at(1, 0, IDS_2T), first)
    assert not Residuals(language_model).has(1, 0, 1)
