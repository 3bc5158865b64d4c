"""Training of one layer: its start, precision, steps, metrics, regularisation, and joint training at several K."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mxd.trainer.config.layer import Method, methods
from mxd.trainer.config.training import Init, MatmulPrecision, OptimizerConfig, RegularizationConfig, TrainConfig
from mxd.trainer.data.activations import LiveActivations, StreamSpec
from mxd.trainer.errors import UserError
from mxd.trainer.inference.routing import route
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.mxd import SMALLEST_NORM, LayerOutput, MxD, SparseLayer, normalized_mse
from mxd.trainer.storage.run import Run
from mxd.trainer.training import initialization
from mxd.trainer.training import precision as precisions
from mxd.trainer.training.initialization import hidden_pattern, initialize, needs_sample
from mxd.trainer.training.layer_trainer import (
    WARM_UP_STEPS,
    CapturedStep,
    CudaRecorder,
    LayerTrainer,
    build_layer_config,
    load_imbalance,
    nested_ks,
    nested_outputs,
    sample_k,
)
from mxd.trainer.training.precision import dtype_of, fastest_dtype, resolve_dtypes, with_dtype
from mxd.trainer.training.train import Resume
from tests.helpers.runs import (
    STEPS,
    TOKENS,
    WIDTH,
    World,
    layer_trainer,
    random_layer,
    routing_to,
    saved_language_model,
    stop_after,
    tiny_language_model,
    train_layer,
)


def test_load_imbalance_is_1_if_balanced_and_n_for_a_single_expert() -> None:
    assert load_imbalance(routing_to([[0, 1], [2, 3]]), 4) == pytest.approx(1)
    assert load_imbalance(routing_to([[2], [2]]), 4) == pytest.approx(4)


def test_the_loss_reaches_the_gate_and_is_absent_by_default(world: World) -> None:
    x_TI = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    for weight in (0.0, 1.0):
        config = world.config(init="random", regularization=RegularizationConfig(load_balance_weight=weight))
        trainer = LayerTrainer.create(config, world.language_model, total_steps=4)
        loss = trainer.auxiliary_loss(trainer.layer(x_TI), x_TI)
        assert (loss is None) == (weight == 0)
    assert loss is not None
    loss.backward()
    gate_gradient = trainer.layer.get_parameter("gate.weight").grad
    assert gate_gradient is not None and gate_gradient.any()


def test_random_k_depends_only_on_seed_and_step(world: World) -> None:
    config = world.config(regularization=RegularizationConfig(k_spread=0.5))
    drawn = [sample_k(config, 4, step) for step in range(400)]
    assert set(drawn) == {2, 3, 4, 5, 6}
    assert drawn == [sample_k(config, 4, step) for step in range(400)]
    layer = random_layer(num_experts=40, k=4)
    x_TI = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    assert layer(x_TI, drawn[0]).routing.indices_TK.shape == (8, drawn[0])
    assert {sample_k(world.config(), 4, step) for step in range(50)} == {4}


WITH_TOP_K: tuple[Method, ...] = (
    "mxd",
    "transcoder",
    "skip-transcoder",
    "autoencoder",
    "low-rank-mxd",
    "tensor-ring-mxd",
    "hidden-mxd",
    "molt",
)


@pytest.mark.parametrize(
    ("k", "smallest", "expected"),
    [(16, 2, (2, 4, 8, 16)), (12, 4, (4, 6, 12)), (12, 5, (5, 6, 12)), (4, 4, (4,)), (5, 1, (1, 2, 5))],
)
def test_halves_down_to_the_smallest(k: int, smallest: int, expected: tuple[int, ...]) -> None:
    assert nested_ks(k, smallest) == expected


@pytest.mark.parametrize("method", WITH_TOP_K)
def test_each_output_matches_the_layer_with_that_k(method: Method) -> None:
    layer, x_TI = random_layer(method), torch.randn(9, 10 if method == "autoencoder" else 12)
    full, outputs = nested_outputs(layer, x_TI, (1, 2, 5))
    for k, output_TO in zip((1, 2, 5), outputs, strict=True):
        torch.testing.assert_close(output_TO, layer.at_k(k)(x_TI).output_TO, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(full.output_TO, layer(x_TI).output_TO, atol=1e-4, rtol=1e-4)


def test_gradients_match_those_of_separate_errors() -> None:
    layer, x_TI, target_TO = random_layer(), torch.randn(9, 12), torch.randn(9, 10)
    outputs = nested_outputs(layer, x_TI, (2, 5))[1]
    torch.stack([normalized_mse(output_TO, target_TO) for output_TO in outputs]).sum().backward()
    together = {name: parameter.grad for name, parameter in layer.named_parameters()}
    layer.zero_grad()
    for k in (2, 5):
        normalized_mse(layer.at_k(k)(x_TI).output_TO, target_TO).backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(together[name], parameter.grad, atol=1e-4, rtol=1e-4)


def test_invalid_k_is_rejected() -> None:
    invalid: tuple[tuple[Method, int, str], ...] = (
        ("mxd", 6, "k=6 exceeds the layer's K=5"),
        ("mxd", 0, r"k=0 activates no expert\. Choose at least 1\."),
        ("relu-mxd", 2, "A relu-mxd has no top-k"),
        ("batch-topk-mxd", 2, "A batch-topk-mxd has no top-k"),
    )
    for method, k, message in invalid:
        with pytest.raises(UserError, match=message):
            random_layer(method).at_k(k)


@pytest.mark.parametrize(
    ("flag", "changes"),
    [
        ("--k-spread", {"method": "batch-topk-mxd", "regularization": RegularizationConfig(k_spread=0.5)}),
        ("--min-k", {"method": "batch-topk-mxd", "min_k": 1}),
        ("--min-k", {"min_k": 2, "regularization": RegularizationConfig(k_spread=0.5)}),
        ("--min-k", {"k": 4, "min_k": 5}),
        ("--rank", {"rank": 2}),
        ("--mixing", {"method": "transcoder", "mixing": "centred"}),
    ],
)
def test_settings_without_effect_or_in_contradiction_are_rejected(
    world: World, flag: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=flag):
        build_layer_config(world.config(**changes), world.language_model.architecture)


def test_a_run_stores_its_smallest_k(world: World) -> None:
    run = world.train("nested", k=8, min_k=1)
    assert run.layer_config.min_k == 1
    assert max(len(token.experts) for token in route(world.language_model, run, "the old fox", k=3).tokens) == 3


class Operations(TorchDispatchMode):
    """Lists the operations, with the tensors that they read and wrote."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def repeat(self) -> None:
        for func, args, kwargs, recorded in self.calls:
            for new, old in zip(tree_leaves(func(*args, **kwargs)), tree_leaves(recorded), strict=True):
                if isinstance(new, Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)


class CpuRecorder(CudaRecorder):
    """Recorder that restores the state after the recording, since a graph only records."""

    def __init__(self, state: Callable[[], list[Tensor]]) -> None:
        self.state, self.recordings = state, 0

    def warm_up(self, work: Callable[[], LayerOutput]) -> LayerOutput:
        return work()

    def record(self, work: Callable[[], LayerOutput]) -> tuple[LayerOutput, Callable[[], None]]:
        self.recordings += 1
        before = [(tensor, tensor.detach().clone()) for tensor in self.state()]
        operations = Operations()
        with operations:
            output = work()
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
        return output, operations.repeat


def make_trainer(method: Method = "mxd", **settings: Any) -> LayerTrainer:
    return layer_trainer(method, lr=torch.zeros(()), **settings)


def state(trainer: LayerTrainer) -> list[Tensor]:
    """All tensors that a step changes."""
    moments = [value for values in trainer.optimizer.state.values() for value in values.values()]
    sums = trainer.metrics
    weights = [*trainer.layer.parameters(), *trainer.layer.buffers()]
    return [*weights, *moments, trainer.last_active_N, sums.errors, sums.l0, sums.counts_N]


def batch(step: int, tokens: int = TOKENS) -> MlpActivations:
    generator = torch.Generator().manual_seed(step)
    return MlpActivations(*(torch.randn(tokens, WIDTH, generator=generator) for _ in range(2)))


def recorded(trainer: LayerTrainer) -> CpuRecorder:
    """Let the trainer record its steps."""
    recorder = CpuRecorder(lambda: state(trainer))
    trainer._compute = CapturedStep(trainer._step_on_device, recorder)
    return recorder


def test_a_random_layer_starts_at_the_mean_output() -> None:
    trainer = make_trainer()
    trainer.train_step(batch(0))
    mean_O = batch(0).output_TO.mean(dim=0)
    torch.testing.assert_close(trainer.layer.get_parameter("output_bias").detach(), mean_O, atol=0.01, rtol=0)


@pytest.mark.parametrize("method", ["mxd", "transcoder", "skip-transcoder", "batch-topk-mxd", "molt"])
def test_recorded_steps_equal_eager_ones(method: Method) -> None:
    """Learning rate, token count and weight of the centre change at every step; metrics are read in between."""
    eager, captured = make_trainer(method), make_trainer(method)
    recorder = recorded(captured)
    for step in range(STEPS):
        expected, output = eager.train_step(batch(step)), captured.train_step(batch(step))
        assert torch.equal(output.output_TO, expected.output_TO), step
        assert all(map(torch.equal, state(captured), state(eager))), step
        if step % 4 == 3:
            assert captured.pop_metrics() == eager.pop_metrics()
    assert recorder.recordings == 1
    assert (captured.step, captured.tokens) == (STEPS, STEPS * TOKENS)
    assert captured.routing_share == eager.routing_share


def test_steps_of_another_size_and_those_that_cannot_be_recorded_run_eagerly() -> None:
    eager, captured, refused = make_trainer(), make_trainer(), make_trainer()
    recorded(captured)
    recorder = recorded(refused)

    def refuse(_work: Callable[[], LayerOutput]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    recorder.record = refuse  # type: ignore[method-assign, assignment]
    with pytest.warns(UserWarning, match="launched one by one: operation not permitted"):
        for step, tokens in enumerate([*[TOKENS] * (WARM_UP_STEPS + 1), 16, TOKENS]):
            for trainer in (eager, captured, refused):
                trainer.train_step(batch(step, tokens))
            assert all(map(torch.equal, state(captured), state(eager)))
            assert all(map(torch.equal, state(refused), state(eager)))


def test_only_equal_steps_on_a_gpu_are_recorded() -> None:
    trainer = make_trainer()
    with pytest.raises(UserError, match="not on cpu"):
        LayerTrainer.from_layer(trainer.layer, trainer.config, STEPS, launch="graph")
    varied = make_trainer(regularization=RegularizationConfig(k_spread=0.5))
    with pytest.raises(UserError, match="--k-spread"):
        varied._check_recordable(torch.device("cuda"))


def sample_of(world: World, config: TrainConfig) -> MlpActivations:
    return next(LiveActivations(world.language_model).buffers(StreamSpec.from_configs([config]))).captured[config.layer]


def initialized(world: World, init: Init, **changes: Any) -> tuple[SparseLayer, MlpActivations]:
    config = world.config(init=init, **changes)
    sample = sample_of(world, config)
    return LayerTrainer.create(config, world.language_model, 24, sample=sample).layer, sample


def start_error(layer: SparseLayer, sample: MlpActivations) -> float:
    """Normalised MSE of the layer, relative to that of the mean output."""
    mean_TO = sample.output_TO.mean(dim=0).expand_as(sample.output_TO)
    with torch.no_grad():
        output_TO = layer(sample.inputs_for(layer)).output_TO
    return float(normalized_mse(output_TO, sample.output_TO) / normalized_mse(mean_TO, sample.output_TO))


@pytest.mark.parametrize("method", ["mxd", "transcoder", "skip-transcoder", "autoencoder", "hidden-mxd"])
def test_initialisation_from_examples_beats_the_mean_at_the_first_step(world: World, method: str) -> None:
    layer, sample = initialized(world, "examples", method=method)
    assert start_error(layer, sample) < 0.9
    used = layer.route(sample.inputs_for(layer)).indices_TK.unique()
    assert len(used) == layer.config.num_experts


@pytest.mark.parametrize("method", ["mxd", "transcoder"])
def test_massive_activations_do_not_spoil_the_start(world: World, method: str) -> None:
    """The first tokens of sequences have a massive output in many language models. All others must start well."""
    config = world.config(init="examples", method=method)
    sample = sample_of(world, config)
    massive_TO = sample.output_TO.clone()
    massive_TO[:: config.text.context_length] += 300 * sample.output_TO.norm(dim=1).median() * torch.ones(1)
    sample = MlpActivations(sample.input_TI, massive_TO)
    layer = LayerTrainer.create(config, world.language_model, 24, sample=sample).layer
    with torch.no_grad():
        error = normalized_mse(layer(sample.inputs_for(layer)).output_TO, massive_TO)
    assert error < 1.05  # predicting zero scores 1


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_experts_from_examples_write_one_direction(world: World, family: str) -> None:
    world = World(world.data, world.database, tiny_language_model(family), world.text)
    layer, sample = initialized(world, "examples")
    assert isinstance(layer, MxD)
    dense_TO = layer.dense_output(sample.input_TI)
    torch.testing.assert_close(dense_TO, torch.ones_like(dense_TO))


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_hidden_units_times_their_pattern_are_those_of_the_mlp(world: World, family: str) -> None:
    world = World(world.data, world.database, tiny_language_model(family), world.text)
    layer, sample = initialized(world, "examples", method="hidden-mxd")
    assert isinstance(layer, MxD)
    with torch.no_grad():
        hidden_TH = layer.encode(sample.input_TI) * hidden_pattern(world.language_model, 1)(sample.input_TI)
        rest_TO = sample.output_TO - layer.decoder(hidden_TH)  # the bias of the MLP's down projection
    torch.testing.assert_close(rest_TO, rest_TO[:1].expand_as(rest_TO), atol=1e-4, rtol=0)


@pytest.mark.parametrize("experts", [40, 3000])
def test_scores_of_examples_are_zero_at_the_mean(world: World, experts: int) -> None:
    layer, sample = initialized(world, "examples", num_experts=experts)
    squares_T1 = sample.output_TO.square().sum(dim=1, keepdim=True)
    weight_T1 = 1 / squares_T1.clamp_min(SMALLEST_NORM)  # as in the training loss
    mean_I = (weight_T1 * sample.inputs_for(layer)).sum(dim=0) / weight_T1.sum()
    assert layer.gate(mean_I).abs().max() < 1e-5
    assert layer.gate(sample.inputs_for(layer)).abs().max() > 1e-2


class LargestTensor(TorchDispatchMode):
    """Size of the largest tensor that an operation made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not func.is_view:
            self.size = max(self.size, result.numel())
        return result


@pytest.mark.parametrize("method", ["mxd", "transcoder", "hidden-mxd"])
def test_the_mixing_is_the_largest_intermediate_value(
    world: World, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sharded experts, every other one of the size of hidden units or of the text would exceed training."""
    monkeypatch.setattr(initialization, "AT_A_TIME", 16)
    monkeypatch.setattr(initialization, "SCALE_TOKENS", 64)
    config = world.config(init="examples", method=method, num_experts=12)
    sample = sample_of(world, config)
    layer = LayerTrainer.create(config.model_copy(update={"init": "random"}), world.language_model, 24).layer
    with LargestTensor() as largest:
        initialize(layer, config, world.language_model, sample)
    assert largest.size <= 64 * layer.table.shape[1] < len(sample.input_TI) * layer.config.input_width


def test_auto_is_random_for_methods_without_examples(world: World) -> None:
    assert needs_sample(world.config())
    assert not needs_sample(world.config(method="low-rank-mxd"))
    with pytest.raises(UserError, match="low-rank-mxd cannot be initialised from examples"):
        initialized(world, "examples", method="low-rank-mxd")


CPU, GPU = torch.device("cpu"), torch.device("cuda")


def units(monkeypatch: pytest.MonkeyPatch, *capability: str) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(capability, True), raising=False)


@pytest.mark.parametrize(("capability", "expected"), [("avx512_bf16", True), ("bf16", True), ("avx512_f", False)])
def test_native_support_selects_bfloat16(capability: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    units(monkeypatch, capability)
    assert fastest_dtype(CPU, 768) == (torch.bfloat16 if expected else torch.float32)
    assert fastest_dtype(CPU, 16) == torch.float32, "narrower than was measured"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert fastest_dtype(GPU, 16) == torch.bfloat16


def test_the_requested_dtype_comes_before_that_of_the_resumed_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units(monkeypatch, "avx512_bf16")
    monkeypatch.setattr(precisions, "MIN_BFLOAT16_WIDTH", 1)
    source = str(saved_language_model(tmp_path / "lm"))
    new, asked = (world.config(name, language_model=source) for name in ("new", "asked"))
    asked = asked.model_copy(update={"language_model_dtype": "float32"})
    assert [it.language_model_dtype for it in resolve_dtypes([new], world.data, CPU)] == ["bfloat16"]
    assert [it.language_model_dtype for it in resolve_dtypes([asked], world.data, CPU)] == ["float32"]
    begun = world.config("begun", language_model=source)
    Run.create(with_dtype(begun, torch.bfloat16), world.data, world.language_model.tokenizer)
    units(monkeypatch)
    assert [it.language_model_dtype for it in resolve_dtypes([begun, new], world.data, CPU)] == ["bfloat16", "bfloat16"]


@pytest.fixture(scope="module")
def half() -> LanguageModel:
    """The tiny model in bfloat16."""
    whole = tiny_language_model()
    return LanguageModel(whole.module.to(torch.bfloat16), whole.tokenizer, whole.source)


def test_a_run_saves_its_dtype_and_resumes_only_in_it(world: World, half: LanguageModel) -> None:
    def train(language_model: LanguageModel, resume: Resume, steps: int, name: str = "small") -> None:
        arguments = (world.config(name), world.data, world.database, language_model)
        train_layer(*arguments, resume=resume, callbacks=stop_after(steps + 1))

    train(half, "never", 9)
    assert Run.load("small", world.data).config.language_model_dtype == "bfloat16"
    with pytest.raises(UserError, match="started with another language_model_dtype"):
        train(world.language_model, "if-any", 100)
    train(half, "if-any", 100)
    train(half, "never", 100, "whole")
    world.check_same_weights("whole", "small")
    assert {value.dtype for value in world.weights("whole").values()} == {torch.float32}, "the layer's own numbers"


def test_a_model_loaded_in_another_dtype_is_an_error(world: World) -> None:
    config = world.config(language_model_dtype="bfloat16")
    with pytest.raises(UserError, match=r"in bfloat16, but the model was loaded in float32\. Load it with dtype=torch"):
        train_layer(config, world.data, world.database, world.language_model)
    assert dtype_of("bfloat16") == torch.bfloat16


@pytest.mark.parametrize(
    ("precision", "setting", "rounds"),
    [("highest", "highest", False), ("high", "high", False), ("medium", "highest", True)],
)
def test_a_training_step_uses_the_precision_of_its_run(precision: MatmulPrecision, setting: str, rounds: bool) -> None:
    """Only TF32 is a setting of the process, which the language model's products in other threads would see."""
    trainer = _trainer("mxd", precision)
    seen: list[tuple[str, bool]] = []
    trainer.layer.register_forward_hook(
        lambda *_: seen.append((torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")))
    )
    trainer.train_step(batch(1))
    assert seen == [(setting, rounds)]


def test_the_language_model_computes_in_the_precision_of_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers are computed in another thread, during steps and between them."""
    seen: list[str] = []
    capture = LanguageModel.capture_layers

    def recorded(language_model: LanguageModel, *words: Any) -> Any:
        seen.append(torch.get_float32_matmul_precision())
        return capture(language_model, *words)

    monkeypatch.setattr(LanguageModel, "capture_layers", recorded)
    optimizer = world.config().optimizer.model_copy(update={"matmul_precision": "high", "buffer_tokens": 128})
    world.train(init="random", optimizer=optimizer)
    assert len(seen) > 2
    assert set(seen) == {"high"}


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "xpu"])
@pytest.mark.parametrize(
    ("precision", "width", "has_units", "expected"),
    [
        ("auto", 512, True, "medium"),
        ("auto", 511, True, "highest"),
        ("auto", 512, False, "highest"),
        ("medium", 8, False, "medium"),  # as recorded by another machine
        ("highest", 512, True, "highest"),
        ("high", 512, True, "high"),
    ],
)
def test_wide_layers_use_bfloat16_products_where_the_device_has_them(
    device: str, precision: MatmulPrecision, width: int, has_units: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "has_bfloat16_units", lambda _device: has_units)
    assert precisions.resolved_precision(precision, torch.device(device), width) == expected
    dtype = torch.bfloat16 if expected == "medium" else torch.float32
    assert precisions.product_dtype(precision, torch.device(device), width) == dtype


def test_units_of_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A T4 has no bfloat16 units; Apple's GPUs gain nothing from them in products."""
    for has_native in (True, False):
        monkeypatch.setattr(precisions, "choose_dtype", lambda _: torch.bfloat16 if has_native else torch.float32)  # noqa: B023
        assert precisions.has_bfloat16_units(torch.device("cuda")) is has_native
        assert not precisions.has_bfloat16_units(torch.device("mps"))


@pytest.mark.parametrize("method", methods("core"))
def test_bfloat16_products_train_every_method_in_float32_up_to_rounding(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "has_bfloat16_units", lambda _device: True)
    exact, rounded = _trainer(method, "highest"), _trainer(method, "medium")
    expected, output = exact.train_step(batch(1)), rounded.train_step(batch(1))
    assert output.output_TO.dtype == torch.float32
    difference_T = (output.output_TO - expected.output_TO).abs().amax(dim=1)
    assert difference_T.max() > 0
    # On a few tokens, rounded scores select another expert.
    assert (difference_T < 0.05 * expected.output_TO.abs().max()).sum() > 0.8 * TOKENS
    assert all(parameter.dtype == torch.float32 for parameter in rounded.layer.parameters())


def _trainer(method: Method, precision: MatmulPrecision) -> LayerTrainer:
    trainer = layer_trainer(method, optimizer=OptimizerConfig(batch_tokens=TOKENS, matmul_precision=precision))
    for parameter in trainer.layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # no zero decoder, so that the products show in the output
    return trainer
