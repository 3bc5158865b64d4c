"""The plan of a training run as text, for ``mxd train --plan``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mxd.trainer.training.plan import TrainPlan

UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def format_plan(plan: TrainPlan) -> str:
    """Return a plan as lines of text."""
    return "\n".join(_plan_lines(plan))


def _plan_lines(plan: TrainPlan) -> Iterator[str]:
    each = f", {plan.processes} processes with one each" if plan.processes > 1 else ""
    yield f"device          {plan.device}{each}"
    yield (
        f"language model  {_short(plan.language_model_parameters)} parameters, "
        f"{_short(plan.language_model_used_parameters)} of them in the blocks that run, in {plan.language_model_dtype}"
    )
    if plan.shard_model is not None:
        yield f"sharding        --shard-model {plan.shard_model}: each process holds a part of the language model"
    for layer in plan.layers:
        yield (
            f"{layer.run}: {layer.method} of layer {layer.layer}, N {layer.num_experts:,}, K {layer.k}, "
            f"{_short(layer.parameters)} parameters, "
            f"{_short(layer.step_flops_per_token)}FLOP per token"
        )
    yield "memory"
    for kind, size in plan.memory.items():
        yield f"  {kind:<34} {size / 1e9:8.2f} GB"
    yield f"  {'total':<34} {plan.memory_total / 1e9:8.2f} GB, {plan.memory_free / 1e9:.2f} GB free"
    yield f"disk            {plan.disk / 1e9:.2f} GB for checkpoints"
    yield (
        f"compute         {_short(plan.flops_per_token)}FLOP per token, "
        f"{_short(plan.flops_per_token * plan.tokens)}FLOP for {plan.tokens:,} tokens"
    )
    yield (
        f"expected        {plan.tokens_per_second:,.0f} tokens/s, {_duration(plan.hours)}, "
        f"{plan.share_of_products:.0%} of the speed of the matrix products alone"
    )


def _short(number: float) -> str:
    size, unit = next(((size, unit) for size, unit in UNITS if number >= size), (1, ""))
    return f"{number / size:.3g} {unit}"


def _duration(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{hours * 60:.1f} minutes" if hours * 60 >= 1 else f"{hours * 3600:.0f} seconds"
