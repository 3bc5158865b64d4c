"""Results about single experts: direct effects and the linear map. One schema for Python and HTTP, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from mxd.trainer.config.generation import Edit
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
@dataclass(frozen=True)
class EditEffect:
    """Measured effect of some edits on the wish of a search, and their price."""

    change: float
    """Change of the wish: log-probability of the wanted texts minus that of the unwanted ones, in nats, averaged over
    the prompts."""
    probability: float
    """Probability of the wanted texts or, without any, of no unwanted one, averaged over the prompts."""
    price: float
    """KL divergence of the next-token distribution from the original one on unrelated text, in nats per token."""
    random_price: float
    """Mean price of random experts of the same runs at the same strengths."""


@documented
@dataclass(frozen=True)
class FoundExpert:
    """An expert with a large predicted effect on the wish, relative to its predicted price."""

    edit: Edit
    """The edit, with the suggested strength."""
    per_unit: float
    """Change of the wish per unit, for small strengths, in nats: gradient times the expert's output."""
    predicted: float
    """Predicted change of the wish by the edit, in nats."""
    predicted_price: float
    """Predicted price of the edit, to second order, in nats per token."""
    change: float
    """Measured change of the wish by the edit, in nats."""
    probability: float
    """Measured probability with the edit."""


@documented
@dataclass(frozen=True)
class FoundExperts:
    """Result of a search by effect."""

    wish: float
    """The wish without edits: log-probability of the wanted texts minus that of the unwanted ones, in nats."""
    probability: float
    """Probability of the wanted texts or, without any, of no unwanted one, averaged over the prompts."""
    experts: tuple[FoundExpert, ...]
    """Largest measured change first."""


@documented
@dataclass(frozen=True)
class FoundGroup:
    """Edits of several experts that together reach a probability, where the search found such edits."""

    edits: tuple[Edit, ...]
    predicted: float
    """Predicted change of the wish, in nats: the sum of the predictions of the search's steps."""
    predicted_price: float
    """Predicted price: the sum over the experts, in nats per token."""
    effect: EditEffect
    reached: bool
    """True if the measured probability is at least the requested one."""


@documented
@dataclass(frozen=True)
class ExpertWrites:
    """Next tokens that an expert promotes and suppresses most: its direct effect, averaged over examples."""

    expert: int
    examples: int
    """Number of examples; 0 for a dead expert."""
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
