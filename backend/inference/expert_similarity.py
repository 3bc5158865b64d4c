"""Most similar experts of a run, and its experts in the plane of their first two principal components.

Shapes: N experts, E chosen experts, D width of a direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mxd.backend.inference.closest import Closest, closest
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import ExpertSelection
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.storage.run import Run

By = Literal["gate", "output"]
ROWS_PER_CHUNK = 8192
PCA_ITERATIONS = 12
PCA_COMPONENTS = 8
"""Components that the iteration tracks; more than the two wanted ones make it converge faster."""


@dataclass(frozen=True)
class Plane:
    """Experts in the plane of their first two principal components."""

    x: list[float]
    y: list[float]
    by: By
    """Directions that were compared."""
    variance: float
    """Explained share of the variance."""


class ExpertSimilarity:
    """The experts of one run as directions: their gate directions or their output scalings."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = Lock()
        self._norms: dict[By, Tensor] = {}

    def similar(self, expert: int, by: By, count: int) -> Closest:
        """The ``count`` other experts with the largest cosine similarities.

        Args:
            expert: an expert of the run.
            by: compare gate directions (rows of G) or output scalings (rows of C).
            count: largest number of experts to return.
        """
        rows, norms_N = self._rows(by), self._norms_of(by)
        direction_D = rows(slice(expert, expert + 1))[0] / float(norms_N[expert])
        cosines_N = torch.cat([_product(rows(chunk), direction_D) for chunk in self._chunks]) / norms_N
        return closest(cosines_N.numpy(), expert, count)

    def plane(self, experts: Sequence[int]) -> Plane:
        """Principal plane of the normalised output scalings of some experts; of gate directions for other methods."""
        by: By = "output" if isinstance(self._run.layer, MxD) else "gate"
        rows_ED = normalize(self._rows(by)(torch.tensor(experts)).float().cpu(), dim=1)
        rows_ED = rows_ED - rows_ED.mean(dim=0)
        components = min(PCA_COMPONENTS, *rows_ED.shape)
        with torch.random.fork_rng(devices=[]):  # its random start decides about signs, so the plane is reproducible
            torch.default_generator.manual_seed(0)
            scores_EW, values_W, _ = torch.pca_lowrank(rows_ED, components, center=False, niter=PCA_ITERATIONS)
        points_EW = scores_EW * values_W
        explained = values_W[:2].square().sum() / rows_ED.square().sum().clamp_min(torch.finfo(torch.float32).tiny)
        x, y = (points_EW[:, component].tolist() for component in (0, min(1, components - 1)))
        return Plane(x, y, by, min(float(explained), 1.0))

    def _rows(self, by: By) -> Callable[[ExpertSelection], Tensor]:
        """Function that returns the directions of some experts."""
        layer = self._run.layer
        if by == "gate":
            return layer.gate.rows
        if not isinstance(layer, MxD):
            raise UserError(f"Experts of a {layer.config.method} have no output scalings. Compare by gate.")
        return lambda some: layer.scaling_NO.detach()[some]

    @property
    def _chunks(self) -> list[slice]:
        starts = range(0, self._run.layer.config.num_experts, ROWS_PER_CHUNK)
        return [slice(start, start + ROWS_PER_CHUNK) for start in starts]

    def _norms_of(self, by: By) -> Tensor:
        with self._lock:
            if by not in self._norms:
                rows = self._rows(by)
                norms_N = torch.cat([rows(chunk).norm(dim=1).float().cpu() for chunk in self._chunks])
                self._norms[by] = norms_N.clamp_min(torch.finfo(norms_N.dtype).tiny)
            return self._norms[by]


def _product(rows_ED: Tensor, direction_D: Tensor) -> Tensor:
    """Products of rows with a direction, [E], on the CPU: another thread may be moving the layer to another device."""
    return (rows_ED @ direction_D.to(rows_ED)).float().cpu()
