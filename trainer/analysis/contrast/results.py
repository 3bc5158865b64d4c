"""Result of a contrast of two texts. One schema for Python, the command line and HTTP, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.printable import ShortRepr
from mxd.trainer.utils.schema import documented

Unit = Literal["document", "sequence"]
SIGNIFICANT_Q = 0.05
"""Q-value up to which an expert counts as telling the texts apart."""


@documented
@dataclass(frozen=True)
class ContrastExample:
    """Part of a text around the largest activation of an expert in one sequence."""

    sequence: int
    """Index of the sequence in its text."""
    position: int
    """Index into ``token_ids`` of the token with the largest activation."""
    coefficient: float
    """Gate activation at ``position``."""
    token_ids: tuple[int, ...]
    active: tuple[tuple[int, float, int], ...]
    """(position, activation, rank) of each active token. Rank 0 is the largest activation of all experts on it."""


@documented
@dataclass(frozen=True)
class ContrastedExpert:
    """Activation of an expert in text A and in text B."""

    expert: int
    active_a: int
    """Number of tokens of text A on which the expert is active."""
    active_b: int
    units_a: int
    """Number of documents (or sequences, see ``unit``) of text A with an active token."""
    units_b: int
    density_a: float
    """Share of the tokens of text A on which the expert is active."""
    density_b: float
    ratio: Interval
    """Density in A divided by density in B, with half an active token added to each. The 95 % interval is over
    documents."""
    activation_ratio: float | None
    """Summed activation per token in A divided by that in B; null if the expert is never active in B."""
    p_value: float
    """Two-sided probability of so large a difference if documents were assigned to the texts at random."""
    q_value: float
    """False discovery rate (Benjamini-Hochberg) of the experts with at most this p-value."""

    @property
    def is_found(self) -> bool:
        """True if the expert tells the texts apart."""
        return self.q_value <= SIGNIFICANT_Q

    @property
    def bound(self) -> float:
        """End of the ratio's interval that is nearer to 1, as a factor of at least 1; 1 if the interval includes 1."""
        return max(self.ratio.low, 1 / self.ratio.high, 1.0)


@documented
@dataclass(frozen=True)
class ContrastExamples:
    """Strongest examples of an expert in both texts, at most one per sequence."""

    a: tuple[ContrastExample, ...]
    b: tuple[ContrastExample, ...]


@documented
@dataclass(frozen=True)
class ContrastedText:
    """Size of one of the two texts."""

    name: str
    documents: int
    units: int
    """Number of documents or sequences that are counted as independent."""
    tokens: int
    """Number of tokens without start tokens."""


@documented
@dataclass(frozen=True)
class ChanceLevel:
    """The same comparison after random assignments of documents to the two texts."""

    shuffles: int
    mean_found: float
    """Mean number of experts with a q-value of at most 0.05."""
    most_found: int
    """Largest such number."""
    shuffles_with_any: int
    """Number of random assignments in which at least one expert was found."""
    covered: float
    """Share of the 95 % intervals that include 1, the true ratio."""


@documented
@dataclass(frozen=True, repr=False)
class Contrast(ShortRepr):
    """Experts whose activation density differs between two texts."""

    run: str
    a: ContrastedText
    b: ContrastedText
    unit: Unit
    """Unit that is counted as independent: document, or sequence if a text has too few documents."""
    num_experts: int
    min_tokens: int
    """Experts with fewer active tokens in both texts together were not tested."""
    min_units: int
    """Experts active in fewer documents of both texts together were not tested."""
    tested: int
    """Number of tested experts."""
    found_a: int
    """Number of experts that are more frequent in text A, with a q-value of at most 0.05."""
    found_b: int
    chance: ChanceLevel | None
    """Null if no random assignments were made."""
    experts: tuple[ContrastedExpert, ...]
    """Tested experts: first those found, by the end of the interval that is nearer to 1, then the others."""
    examples: dict[int, ContrastExamples]
    """Examples of the first experts of either direction, by expert."""
