"""All settings as frozen pydantic models, one module per subject."""

from __future__ import annotations

from mxd.trainer.config.analysis import (
    AblationConfig,
    ContrastConfig,
    EvaluateConfig,
    IndexConfig,
    RecurrenceConfig,
    SteeringEvaluationConfig,
)
from mxd.trainer.config.base import INSTALLED_SAMPLE, SAMPLE, Config, Count, RunName, Size, parse_count
from mxd.trainer.config.layer import Activation, Encoder, LayerConfig, Method
from mxd.trainer.config.steering import (
    Edit,
    EditMode,
    Sampling,
    Scope,
    SteeringConfig,
    SteeringMode,
    Strength,
    StrengthSweepConfig,
)
from mxd.trainer.config.training import (
    Dtype,
    DtypeChoice,
    ImportFormat,
    Init,
    OnShortText,
    OptimizerConfig,
    Origin,
    RegularizationConfig,
    TextConfig,
    TrainConfig,
)

__all__ = [
    "INSTALLED_SAMPLE",
    "SAMPLE",
    "AblationConfig",
    "Activation",
    "Config",
    "ContrastConfig",
    "Count",
    "Dtype",
    "DtypeChoice",
    "Edit",
    "EditMode",
    "Encoder",
    "EvaluateConfig",
    "ImportFormat",
    "IndexConfig",
    "Init",
    "LayerConfig",
    "Method",
    "OnShortText",
    "OptimizerConfig",
    "Origin",
    "RecurrenceConfig",
    "RegularizationConfig",
    "RunName",
    "Sampling",
    "Scope",
    "Size",
    "SteeringConfig",
    "SteeringEvaluationConfig",
    "SteeringMode",
    "Strength",
    "StrengthSweepConfig",
    "TextConfig",
    "TrainConfig",
    "parse_count",
]
