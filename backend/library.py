"""The runs in memory: loaded when first asked for, kept until others need the room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Literal

import torch
from torch import Tensor

from backend.errors import RunNotFoundError
from backend.vocabulary import Vocabulary
from trainer.errors import NotFoundError, UserError
from trainer.files import is_held
from trainer.layers.mxd import MxD
from trainer.layers.sparse import WEIGHTS_FILE
from trainer.run import LOCK_FILE, RUN_FILE, Run, runs_folder

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


class LoadedRun:
    """One run directory with what is derived from it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._lock = Lock()
        self._norms: dict[By, Tensor] = {}

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Texts of its language model's tokens."""
        return Vocabulary(self.run.tokenizer)

    def similar(self, expert: int, by: By, count: int) -> list[tuple[int, float]]:
        """The ``count`` experts most like ``expert``, and their cosines, best first.

        Args:
            expert: an expert of the run.
            by: compare gate directions (rows of G) or output scalings (rows of C).
            count: how many; fewer where there are not as many others.
        """
        rows_ND = self._rows(by)
        norms_N = self._norms_of(by, rows_ND).to(rows_ND.device)  # steering may have moved the layer to a GPU
        direction_D = rows_ND[expert] / norms_N[expert]
        cosines_N = torch.cat([chunk @ direction_D for chunk in rows_ND.split(ROWS_PER_CHUNK)]) / norms_N
        cosines_N[expert] = -torch.inf
        best = cosines_N.topk(min(count, len(cosines_N) - 1))
        return list(zip(best.indices.tolist(), best.values.clamp(-1, 1).tolist(), strict=True))

    def plane(self, experts: Sequence[int]) -> Plane:
        """Principal plane of the output scalings of some experts, each of length one; of gate directions where a method
        has no output scalings. By subspace iteration (Halko et al. 2011, section 4.4) from a fixed start."""
        by: By = "output" if isinstance(self.run.layer, MxD) else "gate"
        rows_ED = torch.nn.functional.normalize(self._rows(by)[list(experts)].float().cpu(), dim=1)
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

    def _rows(self, by: By) -> Tensor:
        layer = self.run.layer
        if by == "gate":
            return layer.gate.weight.detach()
        if not isinstance(layer, MxD):
            raise UserError(f"Experts of a {layer.config.method} have no output scalings; compare by gate.")
        return layer.scaling_NO.detach()

    def _norms_of(self, by: By, rows_ND: Tensor) -> Tensor:
        with self._lock:
            if by not in self._norms:
                norms = [chunk.norm(dim=1) for chunk in rows_ND.split(ROWS_PER_CHUNK)]
                self._norms[by] = torch.cat(norms).clamp_min(torch.finfo(rows_ND.dtype).tiny)
            return self._norms[by]


class Library:
    """Runs of a data folder by name. A run whose files have changed is read again."""

    def __init__(self, data: Path, capacity: int) -> None:
        self.data = data
        self._capacity = capacity
        self._lock = Lock()
        self._loaded: OrderedDict[str, tuple[int, LoadedRun]] = OrderedDict()

    def run(self, name: str) -> LoadedRun:
        """The run of this name.

        Raises:
            RunNotFoundError: its folder is not in the data folder.
            UserError: it is damaged.
        """
        with self._lock:
            stamp = self.stamp(name)
            held = self._loaded.pop(name, None)
            loaded = held[1] if held and held[0] == stamp else self._load(name)
            self._loaded[name] = (stamp, loaded)
            while len(self._loaded) > self._capacity:
                self._loaded.popitem(last=False)
            return loaded

    def at_once(self, name: str) -> LoadedRun | None:
        """The run of this name if it is in memory, as its files are now; None where anything has to be waited for."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            held = self._loaded.get(name)
            if held is None or held[0] != self.stamp(name):
                return None
            self._loaded.move_to_end(name)
            return held[1]
        finally:
            self._lock.release()

    def is_fitting(self, name: str) -> bool | None:
        """Whether a process on this machine is fitting a run now; None where its folder is elsewhere."""
        folder = runs_folder(self.data) / name
        return is_held(folder / LOCK_FILE) if folder.is_dir() else None

    def _load(self, name: str) -> LoadedRun:
        try:
            return LoadedRun(Run.load(name, self.data))
        except NotFoundError as error:
            raise RunNotFoundError(
                f"The folder of run {name} is not in {runs_folder(self.data)}; put it back or name its data folder."
            ) from error

    def stamp(self, name: str) -> int:
        """Changes whenever the run is fitted further or anew."""
        folder = runs_folder(self.data) / name
        paths = [folder, folder / RUN_FILE, folder / WEIGHTS_FILE]
        return hash(tuple(path.stat().st_mtime_ns for path in paths if path.exists()))
