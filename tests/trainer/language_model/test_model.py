"""Capturing and replacing MLPs of many architectures, by packed kernels too."""

import platform
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.jacobians import load_forward_derivatives
from mxd.trainer.language_model import mlp_hooks, residuals
from mxd.trainer.language_model.mlp_hooks import LinearKernels, Mlp, agrees
from mxd.trainer.language_model.model import LanguageModel, cache_argument
from mxd.trainer.language_model.residuals import Residuals
from mxd.trainer.layers.mxd import ACTIVATIONS
from tests.helpers.runs import CONFIGS, SCALED, VOCABULARY, saved_language_model, tiny_language_model

IDS_BT = torch.randint(0, VOCABULARY, (2, 11), generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=sorted(CONFIGS))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_captures_equal_what_plain_hooks_see_before_a_block_changes_it(family: str) -> None:
    """Falcon adds attention to its MLP's output in place, and other blocks may do so with its input."""
    language_model, seen = tiny_language_model(family), dict[int, list[Tensor]]()
    handles = []
    for layer in range(3):
        first, last = (
            getattr(language_model.architecture.block(layer), name)
            for name in language_model.architecture.mlp_names(layer)
        )
        handles.append(first.register_forward_pre_hook(lambda _m, x, i=layer: seen.update({i: [x[0].clone()]})))
        handles.append(last.register_forward_hook(lambda _m, _x, y, i=layer: seen[i].append(y.clone())))
        handles.append(first.register_forward_hook(lambda _m, x, y: (y.clone(), x[0].add_(1))[0]))
    language_model.logits(IDS_BT)
    expected = dict(seen)
    captured = language_model.capture_layers([0, 1, 2], IDS_BT)
    inputs = language_model.mlp_inputs([0, 1, 2], IDS_BT)
    for handle in handles:
        handle.remove()
    for layer, (x, y) in expected.items():
        assert torch.equal(captured[layer].input_TI, x.reshape(22, 16)), layer
        assert torch.equal(captured[layer].output_TO, y.reshape(22, 16)), layer
        assert torch.equal(inputs[layer], x.reshape(22, 16)), layer


def test_a_model_without_a_known_cache_argument_is_an_error() -> None:
    with pytest.raises(UserError, match=r"Linear takes no key-value cache.*'mxd doctor'"):
        cache_argument(torch.nn.Linear(2, 2))


def test_blocks_behind_the_layer_are_not_computed() -> None:
    language_model = tiny_language_model()
    ran: list[str] = []
    for name, module in language_model.module.named_modules():
        module.register_forward_hook(lambda _module, _input, _output, name=name: ran.append(name))
    language_model.capture(1, IDS_BT)
    assert not [name for name in ran if name.startswith(("model.layers.2", "lm_head", "model.norm"))]


def test_encoder_weights_reproduce_the_hidden_vector(family: str) -> None:
    language_model = tiny_language_model(family)
    x_TI, y_TO = language_model.capture(1, torch.randint(0, VOCABULARY, (8, 32)))
    weights, shape = language_model.architecture.encoder_weights(1), language_model.architecture.mlp_shape(1)
    act = ACTIVATIONS[shape.activation]
    z_TH = x_TI @ weights.weight_HI.T + weights.bias_H
    if weights.gate_weight_HI is None:
        z_TH = act(z_TH)
    else:
        assert weights.gate_bias_H is not None
        z_TH = z_TH * act(x_TI @ weights.gate_weight_HI.T + weights.gate_bias_H)
    # The output is linear in the hidden vector, so least squares leaves nothing over exactly when z is right.
    z1 = torch.cat([z_TH, torch.ones(len(z_TH), 1)], dim=1).double()
    assert z1.shape[0] > 2 * z1.shape[1]
    fitted_TO = z1 @ (torch.linalg.pinv(z1) @ y_TO.double())
    torch.testing.assert_close(fitted_TO.float(), y_TO, rtol=1e-3, atol=1e-4)


def test_mlps_are_restored_after_an_error() -> None:
    language_model = tiny_language_model()
    before = language_model.logits(IDS_BT)

    def fail(_x: Tensor, _mlp: Mlp) -> Tensor:
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"), language_model.replace_mlps({1: fail}):
        language_model.logits(IDS_BT)
    assert torch.equal(language_model.logits(IDS_BT), before)


@pytest.mark.parametrize("layer", [-1, 3, 99])
def test_unknown_layer(layer: int) -> None:
    with pytest.raises(UserError, match="layers 0 to 2"):
        tiny_language_model().architecture.mlp_shape(layer)


def test_can_split_row(family: str) -> None:
    language_model = tiny_language_model(family)
    assert language_model.can_split_row(1) == (family != "opt")
    assert [name for name, _ in language_model.module.named_modules() if name.endswith("original")] == []


@pytest.mark.parametrize("family", [*CONFIGS, *SCALED])
def test_the_unembedding_is_computed_in_float32(family: str) -> None:
    """In bfloat16, logits near 16 have steps of 0.06, in which the small effect of an expert vanishes."""
    exact, rounded = tiny_language_model(family), tiny_language_model(family)
    rounded.module.to(torch.bfloat16)
    # The same weights, all of which bfloat16 can hold.
    exact.module.load_state_dict({name: value.float() for name, value in rounded.module.state_dict().items()})
    ids_BT = torch.tensor([[1, 5, 9, 200], [3, 3, 8, 2]])
    residual_RW = exact.residual(ids_BT).flatten(0, 1)
    expected_RV = exact.logits(ids_BT).flatten(0, 1)
    for language_model in (exact, rounded):
        assert torch.allclose(language_model.unembed(residual_RW), expected_RV, rtol=1e-5, atol=1e-5)
    small_RW = 1e-4 * residual_RW.norm() * torch.nn.functional.normalize(torch.ones_like(residual_RW), dim=-1)
    change_RV = exact.unembed(residual_RW + small_RW) - expected_RV
    assert torch.allclose(
        rounded.unembed(residual_RW + small_RW) - rounded.unembed(residual_RW), change_RV, rtol=1e-2, atol=1e-5
    )
    assert all(weight.dtype == torch.bfloat16 for weight in rounded.module.parameters())
    # Whole logits differ by the rounding of the blocks only.
    assert torch.equal(rounded.logits(ids_BT), rounded.unembed(rounded.residual(ids_BT).flatten(0, 1)).view(2, 4, -1))


def test_the_unembedding_has_the_gradient_of_the_final_norm_and_the_head() -> None:
    language_model = tiny_language_model("llama")
    language_model.module.to(torch.bfloat16)
    residual_RW = torch.randn(2, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    language_model.unembed(residual_RW)[:, 7].sum().backward()
    copied_RW = residual_RW.detach().clone().requires_grad_()
    norm, head = language_model.module.model.norm, language_model.module.lm_head
    scaled_RW = copied_RW * (copied_RW.square().mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()
    (scaled_RW * norm.weight.float() @ head.weight.float()[7]).sum().backward()
    assert residual_RW.grad is not None and copied_RW.grad is not None
    assert torch.allclose(residual_RW.grad, copied_RW.grad, atol=1e-5)


@pytest.mark.parametrize(("dtype", "step"), [(torch.float32, 2**-20), (torch.bfloat16, 2**-8)])
def test_logits_that_differ_by_rounding_are_the_same(dtype: torch.dtype, step: float) -> None:
    """A kernel for another batch size flips the last bits. Other rows differ by more, however far logits are from 0."""
    language_model = tiny_language_model()
    language_model.module.to(dtype)
    logits_RTV = language_model.logits(torch.tensor([[1, 2, 3], [3, 1, 1]])) - 100
    spread = logits_RTV.std()
    noise_RTV = 2 * step * spread * torch.randn(logits_RTV.shape, generator=torch.Generator().manual_seed(0))
    assert agrees(logits_RTV + noise_RTV, logits_RTV, dtype)
    assert not agrees(logits_RTV.flip(0), logits_RTV, dtype)
    assert not agrees(logits_RTV[:1], logits_RTV, dtype)


def test_a_model_that_is_loaded_in_inference_mode_has_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(saved_language_model(tmp_path))
    # Weights that move to an accelerator are new tensors, as are those that move to another dtype.
    monkeypatch.setattr("mxd.trainer.language_model.model.choose_device", lambda _name: torch.float64)
    with torch.inference_mode():
        language_model = LanguageModel.load(folder, "auto", torch.float32)
    assert language_model.dtype == torch.float64
    residual_BTW = language_model.residual(torch.tensor([[1, 2]])).requires_grad_()
    (language_model.module.lm_head(residual_BTW))[0, 0, 3].backward()
    assert residual_BTW.grad is not None


IDS_2T = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 1]])


@pytest.mark.parametrize("family", CONFIGS)
def test_continued_passes_equal_whole_ones(family: str) -> None:
    language_model = tiny_language_model(family)
    expected = language_model.logits(IDS_2T)
    stored = Residuals(language_model)
    for layer in (0, 2, len(language_model.architecture.blocks)):
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


WIDTH = 384


@pytest.fixture(autouse=True)
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use packed weights whatever the processor."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)).requires_grad_(False)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 2), (5,), (3, 70), (1025,), (0,)])
def test_products_equal_those_of_the_module(shape: tuple[int, ...]) -> None:
    linears = module()
    x = torch.randn(*shape, WIDTH)
    expected = linears(x)
    kernels = LinearKernels(linears)
    with ExitStack() as stack:
        kernels.apply(stack)
        actual = linears(x)
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert "forward" not in vars(linears[0])
    assert all((each._packed is not None) == bool(x.numel()) for each in kernels._linears)


def test_forward_derivatives_are_kept() -> None:
    load_forward_derivatives()
    linears, x, direction = module(), torch.randn(8, WIDTH), torch.randn(8, WIDTH)
    with ExitStack() as stack, forward_ad.dual_level():
        LinearKernels(linears).apply(stack)
        tangent: Tensor | None = forward_ad.unpack_dual(linears(forward_ad.make_dual(x, direction))).tangent
    assert tangent is not None
    first, _, second = linears.parameters()
    torch.testing.assert_close(tangent, direction @ first.T @ second.T)


def test_changed_weights_are_packed_again() -> None:
    linears, x = module(), torch.randn(8, WIDTH)
    kernels = LinearKernels(linears)
    for _ in range(2):
        with ExitStack() as stack:
            kernels.apply(stack)
            torch.testing.assert_close(linears(x), linears[1](linears[0](x)), rtol=1e-4, atol=1e-5)
            actual = linears(x)
        torch.testing.assert_close(actual, linears(x), rtol=1e-4, atol=1e-5)
        next(linears.parameters()).mul_(2)


def test_without_memory_for_all_copies_the_first_modules_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is computed first: otherwise, results would depend on earlier requests."""
    monkeypatch.setattr(mlp_hooks, "PACKED_BYTES", 4 * WIDTH * WIDTH)
    linears, x = module(), torch.randn(8, WIDTH)
    kernels = LinearKernels(linears)
    assert [each.module for each in kernels._linears] == [linears[0]]
    with ExitStack() as stack:
        kernels.apply(stack)
        linears[1](x)
        actual = linears(x)
    torch.testing.assert_close(actual, linears(x), rtol=1e-4, atol=1e-5)


def test_small_and_reduced_weights_and_other_processors_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not LinearKernels(nn.Linear(8, 8))._linears
    assert not LinearKernels(module().bfloat16())._linears
    assert len(LinearKernels(module())._linears) == 2
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert not LinearKernels(module())._linears
