"""One step of fitting (forward, backward, optimiser): the sparse layer against the same equations done densely.

Shapes: B tokens of a step, I input width, O output width, N experts, K active.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.bench.timing import Machine, in_turn, median_ratio
from trainer.config import LayerConfig
from trainer.layers.mxd import MxD
from trainer.layers.registry import build_layer
from trainer.layers.sparse import Routing
from trainer.metrics import normalised_mse


@dataclass(frozen=True)
class LayerBench:
    """What ``mxd bench layer`` reports."""

    speedup: float
    """Median over rounds of dense seconds / sparse seconds."""
    memory_ratio: float
    """Bytes of the [B, N] matrices that a dense step keeps for its backward pass, over the sparse step's."""
    gradient_error: float
    """Largest relative difference of any parameter's gradient."""
    dense_seconds: float
    sparse_seconds: float
    tokens: int
    num_experts: int
    k: int
    width: int
    hidden_width: int
    machine: Machine


class _Kept:
    """Counts the bytes that autograd keeps between forward and backward."""

    def __init__(self) -> None:
        self.bytes = 0
        self._seen: set[int] = set()

    def pack(self, tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in self._seen:
            self._seen.add(address)
            self.bytes += tensor.untyped_storage().nbytes()
        return tensor


def dense_output(layer: MxD, x_BI: Tensor) -> Tensor:
    """The paper's equation as its own code has it: every product over all N experts."""
    scores_BN = torch.relu(layer.gate(x_BI))
    top = scores_BN.topk(layer.config.k, dim=1)
    coefficients_BN = torch.zeros_like(scores_BN).scatter(1, top.indices, top.values)
    return (coefficients_BN @ layer.scaling_NO) * layer.dense_output(x_BI) + layer.output_bias


def bench_layer(
    *, width: int, hidden_width: int, num_experts: int, k: int, tokens: int, rounds: int, device: str
) -> LayerBench:
    """Time both forms on random data of the given sizes."""
    config = LayerConfig(
        input_width=width,
        hidden_width=hidden_width,
        output_width=width,
        num_experts=num_experts,
        k=k,
        activation="gelu",
        encoder="mlp",
    )
    torch.manual_seed(0)
    layer = build_layer(config).to(device)
    assert isinstance(layer, MxD)
    torch.nn.init.normal_(layer.decoder.weight, std=0.02)  # at zero, half of the gradients would be
    x_BI, y_BO = torch.randn(tokens, width, device=device), torch.randn(tokens, width, device=device)
    forms: dict[str, Callable[[Tensor], Tensor]] = {
        "dense": lambda x: dense_output(layer, x),
        "sparse": lambda x: layer.decode(x, Routing(*layer.route(x))),
    }
    gradients = {name: _gradients(layer, form, x_BI, y_BO) for name, form in forms.items()}
    error = max(float((a - b).norm() / a.norm()) for a, b in zip(*(g[0] for g in gradients.values()), strict=True))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4, weight_decay=0, fused=True)
    seconds = in_turn({name: _step(form, optimizer, x_BI, y_BO) for name, form in forms.items()}, rounds)
    return LayerBench(
        speedup=median_ratio(seconds["dense"], seconds["sparse"]),
        memory_ratio=gradients["dense"][1] / gradients["sparse"][1],
        gradient_error=error,
        dense_seconds=statistics.median(seconds["dense"]),
        sparse_seconds=statistics.median(seconds["sparse"]),
        tokens=tokens,
        num_experts=num_experts,
        k=k,
        width=width,
        hidden_width=hidden_width,
        machine=Machine.here(device),
    )


def _gradients(layer: MxD, form: Callable[[Tensor], Tensor], x_BI: Tensor, y_BO: Tensor) -> tuple[list[Tensor], int]:
    kept = _Kept()
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda tensor: tensor):
        loss = normalised_mse(form(x_BI), y_BO)
    return list(torch.autograd.grad(loss, list(layer.parameters()))), kept.bytes


def _step(
    form: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, x_BI: Tensor, y_BO: Tensor
) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        normalised_mse(form(x_BI), y_BO).backward()
        optimizer.step()

    return step
