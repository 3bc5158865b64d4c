"""Every setting of the trainer, as frozen pydantic models.

The docstring under a field is its documentation and its ``--help`` text, and names its unit. Unknown settings are
refused. ``LayerConfig`` says what a layer is and is saved beside its weights; the others say what to do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Method = Literal["mxd", "transcoder", "skip-transcoder", "autoencoder"]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "sigmoid"]
Encoder = Literal["mlp", "glu"]
Start = Literal["paper", "encoder"]
WhenShort = Literal["fail", "repeat"]

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_COUNT = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmb]?)$", re.IGNORECASE)


def parse_count(value: object) -> object:
    """Read ``20M``, ``1.5b`` or ``250k`` as a whole number; leave anything else to pydantic."""
    found = _COUNT.match(value.strip()) if isinstance(value, str) else None
    return round(float(found[1]) * _SUFFIXES[found[2].lower()]) if found else value


Count = Annotated[int, BeforeValidator(parse_count), Field(gt=0)]
"""A positive whole number that may be written 250k, 20M or 1B."""


class Config(BaseModel):
    """Base of every config: immutable, strict about names, documented by attribute docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


class LayerConfig(Config):
    """What a sparse layer is: enough to build it again before its weights are read."""

    method: Method = "mxd"
    input_width: Annotated[int, Field(gt=0)]
    """I, width of the MLP's input."""
    hidden_width: Annotated[int, Field(gt=0)]
    """H, hidden width of the expert's shared encoder."""
    output_width: Annotated[int, Field(gt=0)]
    """O, width of the MLP's output."""
    num_experts: Annotated[int, Field(gt=0)]
    """N."""
    k: Annotated[int, Field(gt=0)]
    """K, the most experts that are active on a token."""
    activation: Activation
    """Of the encoder; tanh-GELU is gelu_tanh, SiLU is also known as Swish."""
    encoder: Encoder
    """mlp: act(x E). glu: act(x E_g) * (x E)."""


class TextConfig(Config):
    """Which text, and how it becomes token sequences."""

    text: str
    """A .txt, .jsonl, .csv or .parquet file (also .gz or .zst), a folder of them, or a hub data set name."""
    column: str = "text"
    """Name of the field or column that holds the text."""
    split: str = "train"
    """Split of a hub data set."""
    context: Annotated[int, Field(ge=8, le=65_536)] = 128
    """Tokens per sequence."""
    when_short: WhenShort = "fail"
    """What to do when the text ends before the wanted tokens: fail, or repeat it."""


class OptimizerConfig(Config):
    """How the layer is fitted."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate of AdamW. The paper uses 1e-4 over 480M tokens; a few million tokens want ten times more."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of all steps over which the learning rate rises linearly from 0."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of all steps, at the end, over which it falls linearly to 0. The paper's is 0."""
    batch: Count = 2048
    """Tokens per step."""
    window: Count = 65_536
    """Tokens whose activations are held and shuffled together."""


class TrainConfig(Config):
    """Everything that determines a fitted run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of the run, of its folder and in the store."""
    language_model: str
    """Hub name or local folder."""
    layer: Annotated[int, Field(ge=0)]
    """Which block's MLP, from 0."""
    text: TextConfig
    tokens: Count
    """Tokens to fit on."""
    method: Method = "mxd"
    num_experts: int | None = None
    """N; by default what matches the parameters of a transcoder with 32 I features."""
    k: Annotated[int, Field(gt=0)] = 32
    start: Start = "paper"
    """paper: E as torch's Linear. encoder: E starts at the original MLP's input weights (more faithful early, but its
    experts steer less)."""
    optimizer: OptimizerConfig = OptimizerConfig()
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    checkpoint_every: Count = 500_000
    """Tokens between checkpoints."""
    log_every: Count = 50
    """Steps between logged metrics."""


class IndexConfig(Config):
    """One pass over text that gives every expert its statistics and contexts."""

    text: TextConfig
    tokens: Count
    """Tokens to read."""
    top: Annotated[int, Field(gt=0, le=1000)] = 20
    """Contexts kept of an expert's largest coefficients, at most one a sequence."""
    per_interval: Annotated[int, Field(ge=0, le=100)] = 3
    """Contexts kept at random from each interval of coefficients."""
    top_tokens: Annotated[int, Field(gt=0, le=100)] = 12
    """Tokens kept of those it is active on most often."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


def data_folder(environment: dict[str, str]) -> Path:
    """Where runs and the store live: ``MXD_DATA``, or ``data`` in the current folder."""
    return Path(environment.get("MXD_DATA", "data"))
