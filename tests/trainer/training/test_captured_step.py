"""Recorded steps equal eager ones. The recorder here does on a CPU what a CUDA graph does: it repeats the operations of
one step on the same memory, and refuses to read a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mxd.trainer.config import Method, RegularizationConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.base import LayerOutput
from mxd.trainer.training.layer_trainer import WARM_UP_STEPS, CapturedStep, CudaRecorder, LayerTrainer
from tests.helpers.layers import STEPS, TOKENS, WIDTH, layer_trainer


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


def test_batches_of_another_size_run_eagerly() -> None:
    eager, captured = make_trainer(), make_trainer()
    recorded(captured)
    for step, tokens in enumerate([*[TOKENS] * (WARM_UP_STEPS + 1), 16, TOKENS]):
        eager.train_step(batch(step, tokens))
        captured.train_step(batch(step, tokens))
        assert all(map(torch.equal, state(captured), state(eager)))


def test_a_step_that_cannot_be_recorded_goes_on_eagerly() -> None:
    eager, captured = make_trainer(), make_trainer()
    recorder = recorded(captured)
    step_on_device = captured._step_on_device

    def waits(x_TI: Tensor, target_TO: Tensor) -> LayerOutput:
        output = step_on_device(x_TI, target_TO)
        output.output_TO.sum().item()
        return output

    captured._compute = CapturedStep(waits, recorder)
    for step in range(WARM_UP_STEPS):
        captured.train_step(batch(step))
    with pytest.warns(UserWarning, match="launched one by one: operation not permitted"), torch.no_grad():
        before = [tensor.clone() for tensor in state(captured)]
        recorder.record = lambda work: undone(work, state(captured), before)  # type: ignore[method-assign]
        with torch.enable_grad():
            captured.train_step(batch(WARM_UP_STEPS))
    captured.train_step(batch(WARM_UP_STEPS + 1))
    for step in range(WARM_UP_STEPS + 2):
        eager.train_step(batch(step))
    assert all(map(torch.equal, state(captured), state(eager)))


def undone(work: Callable[[], LayerOutput], tensors: list[Tensor], values: list[Tensor]) -> Any:
    """Fail as a recording that meets a wait, which has run nothing."""
    try:
        with Operations():
            work()
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)


def test_only_equal_steps_on_a_gpu_are_recorded() -> None:
    trainer = make_trainer()
    with pytest.raises(UserError, match="not on cpu"):
        LayerTrainer.from_layer(trainer.layer, trainer.config, STEPS, launch="graph")
    varied = make_trainer(regularization=RegularizationConfig(k_spread=0.5))
    with pytest.raises(UserError, match="--k-spread"):
        varied._check_recordable(torch.device("cuda"))
