"""Direct effects against their definition, and residual streams in every architecture."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.analysis.direct_effects import direct_effects
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.prompts import prompt_ids
from mxd.trainer.layers.mxd import MxD
from tests.helpers.language_models import CONFIGS, tiny_language_model
from tests.helpers.runs import World
from tests.trainer.inference.test_steering import make_run

TEXT = "the old fox"


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_unembedding_the_residual_gives_the_logits(family: str) -> None:
    language_model = tiny_language_model(family)
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    residual_TW = language_model.residual(ids)[0]
    torch.testing.assert_close(language_model.unembed(residual_TW), language_model.logits(ids)[0])
    assert not language_model.module.get_submodule("")._forward_hooks


@pytest.mark.parametrize("position", [0, 5, 11])
def test_effects_equal_their_definition(world: World, position: int) -> None:
    run, language_model = make_run(world), world.language_model
    layer = run.layer
    assert isinstance(layer, MxD)
    ids = torch.tensor([prompt_ids(language_model, TEXT)])
    x_1I = language_model.capture(1, ids).input_TI[position : position + 1]
    residual_W = language_model.residual(ids)[0, position]
    norm, head = (language_model.module.get_submodule(name) for name in ("model.norm", "lm_head"))
    whole_V = head(norm(residual_W)).log_softmax(-1)
    effects = direct_effects(language_model, run, TEXT, position)
    assert [effect.coefficient for effect in effects] == sorted((e.coefficient for e in effects), reverse=True)
    for effect in effects:
        own_O = effect.coefficient * (layer.encode(x_1I) @ layer.expert_matrix(effect.expert))[0]
        change_V = whole_V - head(norm(residual_W - own_O)).log_softmax(-1)
        for token in (*effect.promoted, *effect.suppressed):
            assert token.change == pytest.approx(change_V[token.id].item(), abs=1e-4)
        assert effect.promoted[0].change == pytest.approx(change_V.max().item(), abs=1e-4)
        assert effect.suppressed[0].change == pytest.approx(change_V.min().item(), abs=1e-4)


def test_unknown_position(world: World) -> None:
    with pytest.raises(UserError, match="tokens 0 to 11"):
        direct_effects(world.language_model, make_run(world), TEXT, 12)
