"""ReLU-MxD against an MxD that keeps all experts."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.config import Encoder
from mxd.trainer.layers.base import Routing
from tests.helpers.layers import random_layer, random_layer_of


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_a_relu_mxd_equals_an_mxd_with_k_equal_to_n(encoder: Encoder) -> None:
    relu, reference = random_layer_of("relu-mxd", encoder), random_layer(encoder, k=33)
    reference.load_state_dict(relu.state_dict())
    x_TI = torch.randn(7, 12)
    output, expected = relu(x_TI), reference(x_TI)
    torch.testing.assert_close(output.output_TO, expected.output_TO)
    assert torch.equal((output.routing.coefficients_TK > 0).sum(1), (expected.routing.coefficients_TK > 0).sum(1))
    # The columns of the reference's routing are in another order.
    torch.testing.assert_close(relu.decode(relu.dense_output(x_TI), expected.routing), expected.output_TO)
    few = Routing(*(values[:, :4] for values in expected.routing))
    torch.testing.assert_close(relu.decode(relu.dense_output(x_TI), few), reference.decode(expected.dense_TM, few))
