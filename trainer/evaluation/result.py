"""What one evaluation of a run says; ``asdict`` of it is what the store, ``--json`` and the dashboard carry."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config import Method
from trainer.evaluation.health import Health, Shared
from trainer.evaluation.intervals import Interval
from trainer.evaluation.verdicts import Verdict


@dataclass(frozen=True)
class SharedExpert(Shared):
    """The shared experts, and the loss without them and with nothing else."""

    delta_ce_without: float
    """Loss added, in nats, when they are switched off as well."""
    delta_ce_only: float
    """Loss added when all others are."""


@dataclass(frozen=True)
class Evaluation:
    """One run on one text. Losses and divergences in nats a token, against the language model with its own MLP."""

    run: str
    method: Method
    language_model: str
    layer: int
    """Whose MLP's input is read."""
    layers: tuple[int, ...]
    """Whose MLPs are replaced, all at once: this one, and of a cross-layer-mxd those after it that it writes."""
    num_experts: int
    k: int
    """Experts of a token that were let through at most."""
    fitted_k: int
    """K of the run."""
    smallest_k: int | None
    """The smallest K that the run was fitted to be used with; None where it was fitted with its K alone."""
    parameters: int
    seed: int
    fitted_tokens: int
    text: str
    tokens: int
    sequences: int
    seen_text: bool
    """Whether the run was fitted on this text, so that it flatters."""
    ce_original: float
    ce_replaced: float
    ce_zeroed: float
    ce_mean_ablated: float
    ce_frozen: float
    """With what the routing decides held at its mean over tokens."""
    delta_ce: Interval
    loss_recovered_zero: Interval
    """Share of the loss that zeroing the MLP adds which the layer does not add."""
    loss_recovered_mean: Interval
    """The same against the MLP's mean output."""
    kl: float
    agreement: float
    """Share of tokens with the same most probable next token."""
    normalised_mse: float
    """Mean over tokens of ‖ŷ − y‖² / ‖y‖², and over ``layers``."""
    normalised_mse_of_layers: tuple[Interval, ...]
    """The same of each of them, in their order."""
    paper_error: float
    """Mean over tokens and outputs of (ŷ − y)² / ‖y‖, the loss of the paper's code."""
    variance_explained: float
    l0: float
    dead_share: float
    routing_share: float
    """Loss added with what the routing decides held at its mean, as a share of that added by the MLP's mean output. 0:
    the routing does nothing."""
    intervals: dict[str, Interval]
    """Of kl, agreement, normalised_mse, paper_error, variance_explained, l0 and routing_share."""
    continuations: dict[str, float]
    """Share of greedy continuations whose first n tokens are the same, by n."""
    shared_expert: SharedExpert
    health: Health
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class Together:
    """Several runs in place at once, each in its layer."""

    run: str
    """Their names, joined by `` + ``."""
    runs: tuple[str, ...]
    text: str
    tokens: int
    ce_original: float
    ce_replaced: float
    ce_zeroed: float
    ce_mean_ablated: float
    delta_ce: Interval
    sum_of_single: float
    """What the same runs add one at a time, summed."""
    loss_recovered_mean: Interval
    kl: float
    agreement: float


@dataclass(frozen=True)
class AddedLayer:
    """A run in place together with all that come before it. Losses in nats a token, against the untouched original."""

    run: str
    layer: int
    delta_ce: Interval
    kl: float
    agreement: float
    """Share of tokens with the same most probable next token."""
    sum_of_single: float
    """What this run and those before it add one at a time, summed."""


@dataclass(frozen=True)
class Added:
    """Runs put in place one by one, each staying."""

    run: str
    """``one by one: ``, and their names, joined by `` + ``."""
    runs: tuple[str, ...]
    fine_tuned: bool
    """Whether all of them are from ``mxd finetune``."""
    text: str
    tokens: int
    ce_original: float
    steps: tuple[AddedLayer, ...]
