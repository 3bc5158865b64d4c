"""Similar experts of a run, and matches between two runs.

Shapes: N experts, E chosen experts, D width of a direction (input width or number of distinct tokens), Q query
directions, P pairs of an expert and a token, S sampled experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from mxd.backend.inference.closest import Closest, closest
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import ExpertSelection
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.storage.run import Run

By = Literal["gate", "output"]
ROWS_PER_CHUNK = 8192


class ExpertSimilarity:
    """The experts of one run as directions: their gate directions or their output scalings."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = Lock()
        self._norms: dict[By, Tensor] = {}

    def similar(self, expert: int, by: By, count: int) -> Closest:
        """The ``count`` other experts with the largest cosine similarities of gate directions or output scalings."""
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
        return closest((torch.cat(products) / norms_N).numpy(), expert, count)

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


EXPERTS_PER_BLOCK = 4096
Spread = Sequence[tuple[int, float]]
"""Token ids with their shares of an expert's active tokens."""
TINY = torch.finfo(torch.float32).tiny


class Candidates(Protocol):
    """Experts that can be searched for the most similar one."""

    def __len__(self) -> int: ...

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        """Cosine similarities [Q, end - start] of unit directions with the experts ``start`` to ``end``."""


class Vectors(Candidates, Protocol):
    """Experts as unit directions."""

    def dense(self, rows_E: Tensor) -> Tensor:
        """Unit directions [E, D] of the experts ``rows_E``, in float32 on the CPU."""

    def shuffled(self, seed: int) -> Candidates:
        """Control: as many experts, whose values are drawn at random from those of the real ones."""


class Directions:
    """Gate directions of some experts."""

    def __init__(self, rows: Callable[[Tensor], Tensor], experts_E: Tensor) -> None:
        """``rows`` returns the gate directions of experts by id."""
        self._rows, self._experts_E = rows, experts_E

    def __len__(self) -> int:
        return len(self._experts_E)

    def dense(self, rows_E: Tensor) -> Tensor:
        rows_ED = self._rows(self._experts_E[rows_E]).float().cpu()  # steering may have moved the layer to a GPU
        return torch.nn.functional.normalize(rows_ED, dim=1, eps=TINY)

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        return directions_QD @ self.dense(torch.arange(start, end)).T

    def shuffled(self, seed: int) -> Candidates:
        """Control experts, each value drawn from those of the same input."""
        return _ShuffledDirections(self, seed)


class _ShuffledDirections:
    """Directions whose values are each drawn from those of all experts for the same input. Keeps each input's
    distribution of values and removes all relations between inputs. Computed block by block, with the same result every
    time."""

    def __init__(self, real: Directions, seed: int) -> None:
        self._real, self._seed = real, seed

    def __len__(self) -> int:
        return len(self._real)

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        generator = torch.Generator().manual_seed(self._seed + start)
        # Draw from a sample of the experts, so that at most two blocks are in memory.
        sample_S = torch.randint(len(self), (min(EXPERTS_PER_BLOCK, len(self)),), generator=generator)
        real_SD = self._real.dense(sample_S)
        drawn_ED = torch.randint(len(sample_S), (end - start, real_SD.shape[1]), generator=generator)
        shuffled_ED = torch.nn.functional.normalize(real_SD.gather(0, drawn_ED), dim=1, eps=TINY)
        return directions_QD @ shuffled_ED.T


class TokenShares:
    """Token distributions of experts, as a sparse table [E, D] of unit rows."""

    def __init__(self, experts_P: Tensor, columns_P: Tensor, shares_P: Tensor, shape: tuple[int, int]) -> None:
        """``experts_P`` is ascending; ``shape`` is [E, D]."""
        self._shape, self._pairs = shape, (experts_P, columns_P, shares_P)
        table_ED = _sparse(experts_P, columns_P, shares_P, shape).coalesce()
        rows_P, columns_P = table_ED.indices()
        norms_E = torch.zeros(shape[0]).index_add_(0, rows_P, table_ED.values().square()).sqrt().clamp_min(TINY)
        self._rows_P, self._columns_P, self._values_P = rows_P, columns_P, table_ED.values() / norms_E[rows_P]
        self._starts_E = torch.searchsorted(rows_P, torch.arange(shape[0] + 1))

    def __len__(self) -> int:
        return self._shape[0]

    def dense(self, rows_E: Tensor) -> Tensor:
        """Unit directions of some experts, with one column per token id."""
        dense_ED = torch.zeros(len(rows_E), self._shape[1])
        for index, row in enumerate(rows_E.tolist()):
            entries = self._entries(row, row + 1)
            dense_ED[index, self._columns_P[entries]] = self._values_P[entries]
        return dense_ED

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        entries = self._entries(start, end)
        shape = end - start, self._shape[1]
        block_ED = _sparse(self._rows_P[entries] - start, self._columns_P[entries], self._values_P[entries], shape)
        products_EQ: Tensor = torch.sparse.mm(block_ED, directions_QD.T.contiguous())
        return products_EQ.T

    def shuffled(self, seed: int) -> Candidates:
        """Control experts with as many tokens each, whose tokens and shares are permuted among all."""
        experts_P, columns_P, shares_P = self._pairs
        order = torch.randperm(len(shares_P), generator=torch.Generator().manual_seed(seed))
        return TokenShares(experts_P, columns_P[order], shares_P[order], self._shape)

    def _entries(self, start: int, end: int) -> slice:
        """The table's entries of the experts ``start`` to ``end``."""
        return slice(int(self._starts_E[start]), int(self._starts_E[end]))


def _sparse(rows_P: Tensor, columns_P: Tensor, values_P: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(torch.stack([rows_P, columns_P]), values_P, shape, check_invariants=True)


def token_shares(one: Sequence[Spread], other: Sequence[Spread]) -> tuple[TokenShares, TokenShares]:
    """Token distributions of the experts of two runs, with the same columns."""
    tokens = sorted({token for spread in (*one, *other) for token, _ in spread})
    columns = {token: column for column, token in enumerate(tokens)}

    def from_spreads(spreads: Sequence[Spread]) -> TokenShares:
        pairs = [(row, columns[token], share) for row, spread in enumerate(spreads) for token, share in spread]
        pairs_P3 = np.array(pairs, np.float64).reshape(-1, 3)
        experts_P, columns_P = torch.from_numpy(pairs_P3[:, :2].astype(np.int64)).T.contiguous()
        shares_P = torch.from_numpy(pairs_P3[:, 2].astype(np.float32))
        return TokenShares(experts_P, columns_P, shares_P, (len(spreads), len(tokens)))

    return from_spreads(one), from_spreads(other)


QUERIES_PER_BLOCK = 256
MAX_CONTROL_QUERIES = 500
"""Query experts on which the chance level is measured, at most."""
ROUNDING = 1e-5
"""Cosines that differ by less count as equal."""


@dataclass(frozen=True)
class Nearest:
    """The most similar candidate of each query expert."""

    places_Q: Tensor
    """Index among the candidates."""
    cosines_Q: Tensor


@dataclass(frozen=True)
class Matches:
    """Experts of one run with their most similar experts of another."""

    nearest: Nearest
    mutual_Q: Tensor
    """True if the query expert is also the most similar one to its match, for one query expert per match at most."""
    chance_cosine: float
    """Median cosine with the most similar control expert."""


def nearest(vectors: Vectors, places_Q: Tensor, candidates: Candidates) -> Nearest:
    """Find the most similar candidate of each query expert; the first of equal ones."""
    best_Q, indices_Q = torch.full((len(places_Q),), -torch.inf), torch.zeros(len(places_Q), dtype=torch.int64)
    for first in range(0, len(places_Q), QUERIES_PER_BLOCK):
        block = slice(first, first + QUERIES_PER_BLOCK)
        directions_QD = vectors.dense(places_Q[block])
        for start in range(0, len(candidates), EXPERTS_PER_BLOCK):
            cosines_QE = candidates.cosines(directions_QD, start, min(start + EXPERTS_PER_BLOCK, len(candidates)))
            largest_Q = cosines_QE.amax(dim=1)
            index_Q = (cosines_QE >= largest_Q[:, None] - ROUNDING).byte().argmax(dim=1)  # the first of equal ones
            indices_Q[block] = torch.where(largest_Q > best_Q[block] + ROUNDING, index_Q + start, indices_Q[block])
            best_Q[block] = torch.maximum(largest_Q, best_Q[block])
    return Nearest(indices_Q, best_Q.clamp(-1, 1))


def match(one: Vectors, other: Vectors, places_Q: Tensor, seed: int = 0) -> Matches:
    """Match experts of ``one``, at least one at ``places_Q``, with their most similar experts of ``other``. All experts
    of ``one`` are candidates of the reverse search. ``seed`` is that of the chance level."""
    matched = nearest(one, places_Q, other)
    chosen, inverse_Q = matched.places_Q.unique(return_inverse=True)
    reverse = nearest(other, chosen, one)
    sample = torch.randperm(len(places_Q), generator=torch.Generator().manual_seed(seed))[:MAX_CONTROL_QUERIES]
    control = nearest(one, places_Q[sample], other.shuffled(seed))
    mutual_Q = reverse.places_Q[inverse_Q] == places_Q
    return Matches(matched, mutual_Q, float(control.cosines_Q.quantile(0.5)))
