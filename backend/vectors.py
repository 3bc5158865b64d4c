"""What describes experts, as directions that can be compared: their gates, or the tokens that they are active on.

Shapes: E experts, D numbers that describe one (input width or distinct tokens), Q directions to compare with, P pairs
of an expert and a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

EXPERTS_PER_BLOCK = 4096
Spread = Sequence[tuple[int, float]]
"""Token ids with the share of an expert's tokens that each is."""
TINY = torch.finfo(torch.float32).tiny


class Candidates(Protocol):
    """Experts that can be looked through for the most similar one."""

    def __len__(self) -> int: ...

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        """[Q, end - start]: of directions of length one with the experts from one place to another, a block at most."""


class Vectors(Candidates, Protocol):
    """Experts as directions."""

    def dense(self, places_E: Tensor) -> Tensor:
        """[E, D], float32 on the CPU: those at these places, each of length one."""

    def by_chance(self, seed: int) -> Candidates:
        """As many experts that have the same values in each of the D numbers, dealt to them at random."""


class Directions:
    """Rows of a gate, those of some experts."""

    def __init__(self, rows: Callable[[Tensor], Tensor], experts_E: Tensor) -> None:
        """``rows`` gives the directions of some experts, by their ids."""
        self._rows, self._experts_E = rows, experts_E

    def __len__(self) -> int:
        return len(self._experts_E)

    def dense(self, places_E: Tensor) -> Tensor:
        """Their directions."""
        rows_ED = self._rows(self._experts_E[places_E]).float().cpu()  # steering may have moved the layer to a GPU
        return torch.nn.functional.normalize(rows_ED, dim=1, eps=TINY)

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        """With some of them."""
        return directions_QD @ self.dense(torch.arange(start, end)).T

    def by_chance(self, seed: int) -> Candidates:
        """Each input's values drawn from all of them."""
        return _DealtDirections(self, seed)


class _DealtDirections:
    """Directions of which each number is that of an expert drawn for it alone: the means and spreads of all inputs are
    kept, what the experts are is not. Made a block at a time, the same ones every time."""

    def __init__(self, drawn_from: Directions, seed: int) -> None:
        self._drawn_from, self._seed = drawn_from, seed

    def __len__(self) -> int:
        return len(self._drawn_from)

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        """With a block of them."""
        generator = torch.Generator().manual_seed(self._seed + start)
        # Drawn from a sample of the experts, so that there are never more than two blocks in memory.
        sample_S = torch.randint(len(self), (min(EXPERTS_PER_BLOCK, len(self)),), generator=generator)
        real_SD = self._drawn_from.dense(sample_S)
        drawn_ED = torch.randint(len(sample_S), (end - start, real_SD.shape[1]), generator=generator)
        dealt_ED = torch.nn.functional.normalize(real_SD.gather(0, drawn_ED), dim=1, eps=TINY)
        return directions_QD @ dealt_ED.T


class TokenShares:
    """How an expert's tokens are spread over token ids, as far as the index keeps them; most are nowhere, so the table
    is sparse."""

    def __init__(self, experts_P: Tensor, columns_P: Tensor, shares_P: Tensor, shape: tuple[int, int]) -> None:
        """``experts_P`` ascend; ``shape`` is [E, D]."""
        self._shape, self._columns_P, self._raw_P = shape, columns_P, shares_P
        self._experts_P = experts_P
        table_ED = _sparse(experts_P, columns_P, shares_P, shape).coalesce()
        rows_P, columns_P = table_ED.indices()
        norms_E = torch.zeros(shape[0]).index_add_(0, rows_P, table_ED.values().square()).sqrt().clamp_min(TINY)
        self._rows_P, self._kept_P, self._values_P = rows_P, columns_P, table_ED.values() / norms_E[rows_P]
        self._starts_E = torch.searchsorted(rows_P, torch.arange(shape[0] + 1))

    def __len__(self) -> int:
        return self._shape[0]

    def dense(self, places_E: Tensor) -> Tensor:
        """With a column a token id."""
        found_ED = torch.zeros(len(places_E), self._shape[1])
        for row, place in enumerate(places_E.tolist()):
            held = slice(int(self._starts_E[place]), int(self._starts_E[place + 1]))
            found_ED[row, self._kept_P[held]] = self._values_P[held]
        return found_ED

    def cosines(self, directions_QD: Tensor, start: int, end: int) -> Tensor:
        """With some of them."""
        held = slice(int(self._starts_E[start]), int(self._starts_E[end]))
        shape = end - start, self._shape[1]
        block_ED = _sparse(self._rows_P[held] - start, self._kept_P[held], self._values_P[held], shape)
        products_EQ: Tensor = torch.sparse.mm(block_ED, directions_QD.T.contiguous())
        return products_EQ.T

    def by_chance(self, seed: int) -> Candidates:
        """Each expert keeps how many tokens it has, the tokens with their shares go round among all."""
        order = torch.randperm(len(self._raw_P), generator=torch.Generator().manual_seed(seed))
        return TokenShares(self._experts_P, self._columns_P[order], self._raw_P[order], self._shape)


def _sparse(rows_P: Tensor, columns_P: Tensor, values_P: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(torch.stack([rows_P, columns_P]), values_P, shape, check_invariants=True)


def token_shares(one: Sequence[Spread], other: Sequence[Spread]) -> tuple[TokenShares, TokenShares]:
    """The experts of two runs by the tokens they are active on most often, with the same columns."""
    known = sorted({token for spread in (*one, *other) for token, _ in spread})
    columns = {token: column for column, token in enumerate(known)}

    def of(spreads: Sequence[Spread]) -> TokenShares:
        pairs = [(place, columns[token], share) for place, spread in enumerate(spreads) for token, share in spread]
        rows_P3 = np.array(pairs, np.float64).reshape(-1, 3)
        experts_P, columns_P = torch.from_numpy(rows_P3[:, :2].astype(np.int64)).T.contiguous()
        shares_P = torch.from_numpy(rows_P3[:, 2].astype(np.float32))
        return TokenShares(experts_P, columns_P, shares_P, (len(spreads), len(known)))

    return of(one), of(other)
