"""A training step as one CUDA graph: its kernels are recorded once and then launched together.

A step launches about a hundred kernels, each of which costs the CPU some microseconds. Small steps of small layers take
longer to launch than to compute. A recorded step repeats the same kernels on the same memory, so what differs between
steps must be a tensor that stays in place: activations, learning rate, token count, weight of the centre.

Shapes: T tokens, I input width, O output width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor

from mxd.trainer.layers.base import LayerOutput

Launch = Literal["eager", "graph"]
"""How the kernels of a step are launched: one by one, or as one CUDA graph."""
Step = Callable[[Tensor, Tensor], LayerOutput]
"""A step on inputs [T, I] and targets [T, O]."""
WARM_UP_STEPS = 3
"""Steps before the recording, in which kernels are compiled and libraries choose their algorithms."""


class Recorder(Protocol):
    """Recorder of kernels."""

    def warm_up(self, work: Callable[[], LayerOutput]) -> LayerOutput:
        """Run the work as the recording will."""

    def record(self, work: Callable[[], LayerOutput]) -> tuple[LayerOutput, Callable[[], None]]:
        """Record the work without running it. Returns where its results will be, and what runs it."""


class CudaRecorder:
    """Records CUDA graphs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def warm_up(self, work: Callable[[], LayerOutput]) -> LayerOutput:
        """Run the work on another stream than the default one, as a recording does."""
        stream, current = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            output = work()
        current.wait_stream(stream)
        return output

    def record(self, work: Callable[[], LayerOutput]) -> tuple[LayerOutput, Callable[[], None]]:
        """Record the work. Other threads, which compute activations, may allocate memory meanwhile."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self._device)
        # The outer context restores the stream and the device if the inner one fails, which leaves its own.
        with (
            torch.cuda.stream(torch.cuda.current_stream(self._device)),
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
        ):
            output = work()
        return output, graph.replay


class CapturedStep:
    """Runs a step eagerly a few times, then records it, and from then on replays the recording.

    A step of another shape runs eagerly. So do all steps, with a warning, if the step cannot be recorded.
    """

    def __init__(self, step: Step, recorder: Recorder) -> None:
        self._step, self._recorder = step, recorder
        self._warm_ups_left = WARM_UP_STEPS
        self._replay: Callable[[], None] | None = None

    def __call__(self, x_TI: Tensor, target_TO: Tensor) -> LayerOutput:
        """Take a step. Its output is overwritten by the next one."""
        if self._warm_ups_left > 0:
            self._warm_ups_left -= 1
            return self._recorder.warm_up(lambda: self._step(x_TI, target_TO))
        if self._replay is None and self._warm_ups_left == 0:
            self._record(x_TI, target_TO)
        if self._replay is None or (x_TI.shape, target_TO.shape) != (self._x_TI.shape, self._target_TO.shape):
            return self._step(x_TI, target_TO)
        self._x_TI.copy_(x_TI)
        self._target_TO.copy_(target_TO)
        self._replay()
        return self._output

    def _record(self, x_TI: Tensor, target_TO: Tensor) -> None:
        self._warm_ups_left = -1  # once, whatever comes of it
        self._x_TI, self._target_TO = x_TI.clone(), target_TO.clone()
        try:
            self._output, self._replay = self._recorder.record(lambda: self._step(self._x_TI, self._target_TO))
        except RuntimeError as error:
            warnings.warn(f"The step cannot be recorded, so its kernels are launched one by one: {error}", stacklevel=2)
