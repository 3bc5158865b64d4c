"""Results about single experts: direct effects and the linear map. One schema for Python and HTTP, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from mxd.trainer.utils.schema import documented


@documented
@dataclass(frozen=True, slots=True)
class TokenEffect:
    """Effect of an expert on the probability of one token."""

    id: int
    text: str
    change: float
    """Log-probability with the expert's output minus log-probability without it, in nats."""


@documented
@dataclass(frozen=True)
class ExpertEffect:
    """Active expert and the next tokens that it promotes and suppresses most."""

    expert: int
    coefficient: float
    """Gate activation."""
    promoted: tuple[TokenEffect, ...]
    """Largest change first."""
    suppressed: tuple[TokenEffect, ...]
    """Most negative change first."""


@documented
@dataclass(frozen=True, slots=True)
class OutputDimension:
    """An output dimension and its entry in c_n."""

    dimension: int
    """Index of the output dimension."""
    scaling: float
    """Entry of c_n."""
    relative: float
    """Absolute value of the entry, relative to the dimension's root mean square over all experts."""


@documented
@dataclass(frozen=True)
class SingularDirection:
    """A right singular vector of W_n, an output direction that the expert adds with either sign."""

    share: float
    """Share of the sum of squared singular values."""
    positive_tokens: tuple[TokenEffect, ...]
    """Tokens that the direction promotes most, by the logit lens, with their logits above the mean."""
    negative_tokens: tuple[TokenEffect, ...]
    """Tokens that the opposite direction promotes most."""


@documented
@dataclass(frozen=True)
class ExpertMap:
    """Output directions and output dimensions of an expert's linear map."""

    stable_rank: float
    """‖W‖²_F / ‖W‖²₂; 1 for a map with a single output direction."""
    directions: tuple[SingularDirection, ...]
    """Leading singular directions, largest share first."""
    largest_scalings: tuple[OutputDimension, ...]
    """Output dimensions that c_n scales most; empty if c_n does not scale outputs."""
    smallest_scalings: tuple[OutputDimension, ...]
    """Output dimensions that c_n scales least; empty if c_n does not scale outputs."""
    small_scaling_share: float | None
    """Share of output dimensions scaled by less than a tenth of their root mean square over all experts."""
