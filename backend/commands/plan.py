"""What ``mxd train --plan`` says, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.fit_plan import FitPlan

UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def plan_in_words(plan: FitPlan) -> str:
    """A plan as lines."""
    return "\n".join(_lines(plan))


def _lines(plan: FitPlan) -> Iterator[str]:
    each = f", {plan.processes} processes with one each" if plan.processes > 1 else ""
    yield f"device          {plan.device}{each}"
    yield (
        f"language model  {_short(plan.language_model_parameters)} parameters, "
        f"of which {_short(plan.language_model_used_parameters)} are in the blocks that are run, in "
        f"{plan.language_model_dtype}"
    )
    for it in plan.layers:
        yield (
            f"{it.run}: {it.method} of layer {it.layer}, N {it.num_experts:,}, K {it.k}, {it.gate} gate, "
            f"{_short(it.parameters)} parameters, {_short(it.step_flops_per_token)}FLOP a token"
        )
    yield "memory"
    for kind, size in plan.memory.items():
        yield f"  {kind:<34} {size / 1e9:8.2f} GB"
    free = f"; {plan.memory_free / 1e9:.2f} GB are free"
    yield f"  {'in all':<34} {plan.memory_total / 1e9:8.2f} GB{free}"
    yield f"disk            {plan.disk / 1e9:.2f} GB for checkpoints"
    yield (
        f"arithmetic      {_short(plan.flops_per_token)}FLOP a token, {_short(plan.flops_per_token * plan.tokens)}FLOP "
        f"for {plan.tokens:,} tokens"
    )
    yield (
        f"expected        {plan.tokens_per_second:,.0f} tokens/s, {_time(plan.hours)}, at {plan.share_of_products:.0%} "
        "of the speed of matrix products alone"
    )


def _short(number: float) -> str:
    size, unit = next(((size, unit) for size, unit in UNITS if number >= size), (1, ""))
    return f"{number / size:.3g} {unit}"


def _time(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{hours * 60:.1f} minutes" if hours * 60 >= 1 else f"{hours * 3600:.0f} seconds"
