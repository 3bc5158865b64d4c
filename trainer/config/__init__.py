"""All settings as frozen pydantic models, one module per subject."""

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
