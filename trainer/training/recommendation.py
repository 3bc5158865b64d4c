"""The processes and flags that ``--plan`` recommends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch

from mxd.trainer.config import TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.loading import Sharding
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.training.layer_trainer import Parallel, build_layer_config
from mxd.trainer.training.plan import PlannedTraining, TrainSetup, products_of, seconds_per_token

MIN_GAIN_PER_PROCESS, MIN_GAIN = 0.25, 0.1
"""Gain in throughput from which a larger setup is recommended: per added process, as a share of the throughput per
process in use, and at least in total."""
SHARDINGS: tuple[Sharding | None, ...] = (None, "fsdp")
DIVISIONS: tuple[Parallel, ...] = ("tokens", "runs", "experts")


class Recommendation(NamedTuple):
    """A setup with its expected throughput."""

    setup: TrainSetup
    tokens_per_second: float


def recommend(configs: Sequence[TrainConfig], setup: TrainSetup) -> Recommendation | None:
    """The fastest setup, with at most these processes, whose added processes pay off; None if none fits."""
    planned = PlannedTraining(configs, setup._replace(processes=1, nodes=1, sharding=None, parallel="tokens"))
    candidates = list(_candidates(planned, setup))
    rates = setup.rates(product for one in candidates for product in products_of(one).values())
    best: Recommendation | None = None
    for one in candidates:  # from the simplest on
        throughput = one.setup.processes / seconds_per_token(one, rates)
        if best is not None:
            added = one.setup.processes / best.setup.processes - 1
            gain = throughput / best.tokens_per_second - 1
            if gain <= max(MIN_GAIN, MIN_GAIN_PER_PROCESS * added):
                continue
        best = Recommendation(one.setup, throughput)
    return best


def _candidates(planned: PlannedTraining, setup: TrainSetup) -> Iterator[PlannedTraining]:
    """Setups that fit in memory, fewest processes first."""
    with torch.device("meta"):
        layers = [build_layer(build_layer_config(config, planned.architecture)) for config in planned.configs]
    divisions = DIVISIONS if all(layer.expert_tables for layer in layers) else DIVISIONS[:2]
    for grid in setup.grid.smaller():
        for parallel, sharding in product(divisions, SHARDINGS):
            if grid.processes == 1 and (parallel, sharding) != ("tokens", None):
                continue
            if parallel == "runs" and len(planned.configs) < grid.processes:
                continue
            changed = setup._replace(
                processes=grid.processes, nodes=grid.nodes, sharding=sharding, parallel=parallel, auto_map=False
            )
            try:
                one = planned.on(changed)
            except UserError:
                continue
            if sum(one.memory().values()) <= setup.free_bytes:
                yield one
