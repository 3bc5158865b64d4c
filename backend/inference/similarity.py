"""Similar experts of a run. Shapes: N experts, E experts of a chunk, D width of a direction."""

from collections.abc import Callable
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mxd.trainer.errors import UserError
from mxd.trainer.layers.mxd import ExpertSelection, MxD
from mxd.trainer.storage.run import Run

By = Literal["gate", "output"]
ROWS_PER_CHUNK = 8192


class ExpertSimilarity:
    """The experts of one run as directions: their gate directions or their output scalings."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = Lock()
        self._norms: dict[By, Tensor] = {}

    def cosines_N(self, expert: int, by: By) -> NDArray[np.floating[Any]]:
        """Cosine similarities of gate directions or output scalings with all experts."""
        rows = self._rows(by)
        with self._lock:
            if by not in self._norms:
                norms_N = torch.cat([rows(chunk).norm(dim=1).float().cpu() for chunk in self._chunks])
                self._norms[by] = norms_N.clamp_min(torch.finfo(norms_N.dtype).tiny)
            norms_N = self._norms[by]
        direction_D = rows(slice(expert, expert + 1))[0] / float(norms_N[expert])
        products = []
        for chunk in self._chunks:
            rows_ED = rows(chunk)
            # Another thread may be moving the layer to another device.
            products.append((rows_ED @ direction_D.to(rows_ED)).float().cpu())
        cosines_N: NDArray[np.floating[Any]] = (torch.cat(products) / norms_N).numpy()
        return cosines_N

    def _rows(self, by: By) -> Callable[[ExpertSelection], Tensor]:
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
