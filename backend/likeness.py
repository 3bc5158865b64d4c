"""Which experts of one run are most alike, and how they lie in the plane in which they differ most.

Shapes: N experts, E of them that are looked at, D numbers that describe one, W directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal

import torch
from torch import Tensor

from trainer.errors import UserError
from trainer.layers.gates.base import Some
from trainer.layers.mxd import MxD
from trainer.run import Run

By = Literal["gate", "output"]
ROWS_PER_CHUNK = 8192
PLANE_ROUNDS = 12
PLANE_SPARE = 6
"""Directions followed beside the two that are wanted, so that these settle sooner."""


@dataclass(frozen=True)
class Plane:
    """Experts in the two directions in which they differ most."""

    x: list[float]
    y: list[float]
    by: By
    """What was compared."""
    variance: float
    """Share of the variance that lies in the plane."""


class Likeness:
    """The experts of one run as directions: their gates, or their output scalings."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = Lock()
        self._norms: dict[By, Tensor] = {}

    def similar(self, expert: int, by: By, count: int) -> list[tuple[int, float]]:
        """The ``count`` experts most like ``expert``, and their cosines, best first.

        Args:
            expert: an expert of the run.
            by: compare gate directions (rows of G) or output scalings (rows of C).
            count: how many; fewer where there are not as many others.
        """
        rows, ranges = self._rows(by), self._ranges
        direction_D = rows(slice(expert, expert + 1))[0]
        norms_N = self._norms_of(by).to(direction_D.device)  # steering may have moved the layer to a GPU
        direction_D = direction_D / norms_N[expert]
        cosines_N = torch.cat([rows(some) @ direction_D for some in ranges]) / norms_N
        cosines_N[expert] = -torch.inf
        best = cosines_N.topk(min(count, len(cosines_N) - 1))
        return list(zip(best.indices.tolist(), best.values.clamp(-1, 1).tolist(), strict=True))

    def plane(self, experts: Sequence[int]) -> Plane:
        """Principal plane of the output scalings of some experts, each of length one; of gate directions where a method
        has no output scalings. By subspace iteration (Halko et al. 2011, section 4.4) from a fixed start."""
        by: By = "output" if isinstance(self._run.layer, MxD) else "gate"
        rows_ED = torch.nn.functional.normalize(self._rows(by)(torch.tensor(experts)).float().cpu(), dim=1)
        rows_ED = rows_ED - rows_ED.mean(dim=0)
        width = min(2 + PLANE_SPARE, *rows_ED.shape)
        start_DW = torch.randn(rows_ED.shape[1], width, generator=torch.Generator().manual_seed(0))
        directions_DW = torch.linalg.qr(start_DW).Q
        for _ in range(PLANE_ROUNDS):
            directions_DW = torch.linalg.qr(rows_ED.T @ (rows_ED @ directions_DW)).Q
        _, values_W, turned_WW = torch.linalg.svd(rows_ED @ directions_DW, full_matrices=False)
        places_E2 = rows_ED @ directions_DW @ turned_WW[:2].T
        held = values_W[:2].square().sum() / rows_ED.square().sum().clamp_min(torch.finfo(torch.float32).tiny)
        x, y = (places_E2[:, side].tolist() for side in (0, min(1, width - 1)))
        return Plane(x, y, by, min(float(held), 1.0))

    def _rows(self, by: By) -> Callable[[Some], Tensor]:
        """What gives the directions of some experts: not every gate holds them all at once."""
        layer = self._run.layer
        if by == "gate":
            return layer.gate.rows
        if not isinstance(layer, MxD):
            raise UserError(f"Experts of a {layer.config.method} have no output scalings; compare by gate.")
        scaling_NO = layer.scaling_NO.detach()
        return lambda some: scaling_NO[some]

    @property
    def _ranges(self) -> list[slice]:
        """All experts, so many at a time."""
        starts = range(0, self._run.layer.config.num_experts, ROWS_PER_CHUNK)
        return [slice(start, start + ROWS_PER_CHUNK) for start in starts]

    def _norms_of(self, by: By) -> Tensor:
        with self._lock:
            if by not in self._norms:
                rows = self._rows(by)
                norms_N = torch.cat([rows(some).norm(dim=1) for some in self._ranges])
                self._norms[by] = norms_N.clamp_min(torch.finfo(norms_N.dtype).tiny)
            return self._norms[by]
