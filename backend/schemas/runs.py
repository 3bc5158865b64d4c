"""Runs and their metrics."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from backend.schemas.base import Schema
from trainer.config import Method

RunStatus = Literal["training", "stopped", "finished", "failed"]


class MetricPoint(Schema):
    step: int
    tokens: int
    normalised_mse: float
    dead_share: float
    """Share of experts that were active on no token of the last logging interval's usage window."""
    l0: float
    """Mean number of active experts per token."""
    largest_usage: float
    tokens_per_second: float
    seconds: float
    """Since fitting began, over all resumptions."""
    normalised_rank: float | None = None
    """Rank of an expert's matrix over the largest that there can be, mean of a few experts; null where not measured."""
    stable_rank: float | None = None
    """‖W‖²_F / ‖W‖²₂, mean of the same."""
    smallest_singular_value: float | None = None
    """Smallest of the same, as a share of the largest one of its expert."""
    smallest_scaling: float | None = None
    """Smallest |c_n| over all entries of all experts."""


class RunSummary(Schema):
    name: str
    status: RunStatus
    language_model: str
    layer: int
    """Whose MLP it reads the input of."""
    last_layer: int
    """The last whose MLP it writes, from that one on; the same but for a cross-layer-mxd."""
    method: Method
    activation: str
    num_experts: int
    k: int
    smallest_k: int | None
    """The smallest K that it was fitted to be used with; null where it was fitted with its K alone."""
    has_top_k: bool
    """Whether it can be routed and steered through with a smaller K."""
    gate: str
    """How the K are found: flat, product-key, two-level, cells or projected, and with how many groups or numbers."""
    hidden_width: int
    parameters: int
    origin: str | None
    """Where an imported run came from: format, source and the part of it; null of one that was fitted here."""
    text: str
    seed: int
    tokens_wanted: int
    tokens_done: int
    started_at: datetime
    updated_at: datetime
    last_metric: MetricPoint | None
    indexed_tokens: int | None
    """Tokens in the index of contexts; null before ``mxd index``."""
    experts_active: int | None
    """Experts active on at least one indexed token."""


class RunList(Schema):
    runs: tuple[RunSummary, ...]


class RunDetail(Schema):
    run: RunSummary
    input_width: int
    output_width: int
    context: int
    """Tokens per sequence in fitting and indexing."""
    error: str | None
    """Why it failed, and the command that resumes."""
    resume_command: str
    index_text: str | None
    config: dict[str, str | int | float | bool | None]
    metrics: tuple[MetricPoint, ...]


class StatusChange(Schema):
    """How a run stands from now on."""

    status: RunStatus
