"""Settings of training and fine-tuning.

The docstring of a field is its documentation and its ``--help`` text.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from mxd.trainer.config.base import Config, Count, RunName, Size, parse_count, without_retired
from mxd.trainer.config.layer import Method, method_traits

ImportFormat = Literal["mxd-checkpoint", "sparsify", "saelens", "circuit-tracer", "neuronpedia"]
Init = Literal["auto", "random", "examples"]
OnShortText = Literal["fail", "repeat"]
MatmulPrecision = Literal["auto", "highest", "high", "medium"]
Dtype = Literal["float32", "bfloat16", "float16", "float64"]
DtypeChoice = Literal["auto", "float32", "bfloat16"]
"""Dtype in which a language model is loaded; ``auto`` suits the device."""


class TextConfig(Config):
    """Dataset, and how it is cut into token sequences."""

    dataset: str
    """Dataset: a .txt, .jsonl, .csv or .parquet file, a folder or pattern (texts/*.jsonl) of such files, or a dataset
    on the Hugging Face Hub as NAME or NAME:SUBSET. Files can be compressed (.gz, .zst), and URLs that fsspec reads
    (hf://, s3://, https://)."""
    column: str = "text"
    """Field or column that holds the text. Default: text."""
    split: str = "train"
    """Split of a Hub dataset. Default: train."""
    context_length: Annotated[int, Field(ge=8, le=65_536)] = 128
    """Tokens per sequence, 8 to 65,536. Default: 128."""
    on_short_text: OnShortText = "fail"
    """Behaviour if the dataset has too few tokens: fail with an error, or repeat the dataset. Default: fail."""
    start_token: str | None = None
    """Token before each document and prompt, such as <s>. Default: that of the run; for a new run, the token that the
    tokenizer adds itself, else <|endoftext|>, else its end-of-text token."""


DEAD_AFTER_TOKENS = 262_144
"""Tokens without an activation after which an expert counts as dead."""


class OptimizerConfig(Config):
    """Optimiser, learning-rate schedule and batches."""

    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate of AdamW. Default: 3e-3 for up to 4M tokens, 1e-3 for 20M, and the paper's 1e-4 for 480M;
    3e-4 for fine-tuning. The run stores it."""
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Learning-rate warm-up, as a fraction of all steps. Default: 0.05."""
    decay_ratio: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Linear learning-rate decay to 0, as a fraction of all steps. Default: 0.3. The paper uses 0."""
    batch_tokens: Count = 2048
    """Tokens per step. Default: 512 for runs of up to 4M tokens, else 2,048, or 4,096 on GPUs. Fine-tuning: 2,048."""
    buffer_tokens: Count = 65_536
    """Size of the shuffle buffer of activations, in tokens. Default: 65,536. Lower it if memory is short."""
    matmul_precision: MatmulPrecision = "auto"
    """Precision of the layer's matrix products. highest: float32. high: TF32 on GPUs. medium: bfloat16 with sums in
    float32. Default: auto, which is medium for MLPs with at least 512 inputs on GPUs and CPUs with native bfloat16,
    else highest. The run stores it, and resumed runs keep it."""


SHORT_RUN = 4_000_000
"""Tokens up to which a run has small steps and the full learning rate."""
SHORT_RUN_BATCH = 512
GPU_SCORES = 1 << 29
"""Number of gate scores that a GPU holds at once: 1 GB in bfloat16."""
GPU_BATCH = 4096
"""Default tokens per step of longer runs on GPUs, as in the paper. Smaller steps take longer to launch than to
compute."""
FULL_RATE, RATE_EXPONENT = 3e-3, 0.7
"""Default learning rate of a short run; of others it falls with this power of the number of tokens."""


def default_learning_rate(tokens: int) -> float:
    """Peak learning rate of a run of some tokens, with two digits; the same for all sizes of step.

    3e-3 for short runs and the paper's 1e-4 for 480M tokens, in steps of 4,096, lie on it.
    """
    return float(f"{FULL_RATE * (SHORT_RUN / max(tokens, SHORT_RUN)) ** RATE_EXPONENT:.1e}")


def default_optimizer(tokens: int) -> dict[str, Any]:
    """Optimizer settings of a run of some tokens, for those that the user does not set."""
    short = {"batch_tokens": SHORT_RUN_BATCH} if tokens <= SHORT_RUN else {}
    return {"learning_rate": default_learning_rate(tokens), **short}


def _with_optimizer(values: Any, default: Callable[[int], dict[str, Any]]) -> Any:
    if not isinstance(values, Mapping):
        return values
    optimizer, tokens = values.get("optimizer", {}), parse_count(values.get("tokens"))
    settings = optimizer.model_dump(exclude_unset=True) if isinstance(optimizer, OptimizerConfig) else optimizer
    # An imported run that does not state its tokens has 0.
    if not isinstance(settings, Mapping) or not isinstance(tokens, int) or tokens == 0:
        return values
    chosen = {name: value for name, value in settings.items() if value is not None}
    return {**values, "optimizer": {**default(tokens), **chosen}}


class RegularizationConfig(Config):
    """Regularisation against dead, identical or overloaded experts. Off by default."""

    k_spread: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Random-K: sample K uniformly from K·(1 ± x) at each step. Default: 0 (off). The paper uses 0.5."""
    load_balance_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the load-balancing loss, which is 1 if all experts are used equally and N if one does everything.
    Default: 0 (off)."""


class Origin(Config):
    """Source of an imported layer."""

    format: ImportFormat
    source: str
    """Imported file, folder or Hub repository."""
    part: str
    """Folder or file inside the source; empty if it is the source itself."""
    revision: str | None = None
    """Commit of a Hub repository."""
    version: str | None = None
    """Version of the library that wrote the layer, if the file names it."""
    sha256: str
    """SHA-256 hash of the weights file."""


class TrainConfig(Config):
    """Everything that determines a trained run."""

    name: RunName
    """Name of the run and of its folder: letters, digits, '.', '_' and '-', at most 100."""
    language_model: str
    """Hugging Face Hub name or local folder of the language model."""
    language_model_dtype: Dtype | None = None
    """Data type of the language model during training. The run stores it; None for imported runs."""
    layer: Annotated[int, Field(ge=0, lt=2**15)]
    """Index of the block whose MLP is replaced, from 0."""
    text: TextConfig
    """Dataset to train on."""
    tokens: Annotated[int, BeforeValidator(parse_count), Field(ge=0, lt=2**53)]
    """Number of training tokens, such as 20M."""  # 0 for an imported run that does not state it
    method: Method = "mxd"
    """Kind of layer to train. Default: mxd."""
    num_experts: Count | None = None
    """Number of experts N. Default: as many as match the parameters of a transcoder with 32 features per input
    value."""
    k: Size = 32
    """Maximum number of active experts per token, K. Default: 32. For batch-topk-mxd it is an average."""
    rank: Size | None = None
    """Rank of low-rank experts; for a molt, the largest rank. Default for a molt: half the MLP's output width."""
    min_k: Size | None = None
    """Matryoshka-K: train with K, K/2, K/4 … down to this many experts, so that K can be reduced later. Default:
    off."""
    mixing: Literal["auto", "paper", "centred"] = "auto"
    """Mixing of an MxD. centred: the median of aC over the training tokens is subtracted, so that no constant mixing
    can replace the MLP. paper: aC as in the paper; training may then make the routing useless. Default: auto, which is
    centred if the method supports it."""
    init: Init = "auto"
    """Initialisation. examples: each expert starts as one example token, with its gate at the input and its output at
    the MLP's output. random: as torch's Linear, with a zero decoder, as in the paper. Default: auto, which is examples
    if the method supports it."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimiser settings."""
    regularization: RegularizationConfig = RegularizationConfig()
    """Regularisation settings."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the initial weights. Default: 0."""
    data_seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Random seed of the data order. Default: the same as the seed. Runs with the same data order can be trained in one
    pass."""
    checkpoint_every: Count = 500_000
    """Tokens between checkpoints. Default: 500k. Fewer are written if they would take over 5 % of the time."""
    log_every: Count = 50
    """Steps between logged metrics. Default: 50."""
    origin: Origin | None = None
    """Source of an imported run. None if the run was trained here."""
    parents: tuple[RunName, ...] = ()
    """Parents of a fine-tuned run: the run it started from, then the other runs that were fine-tuned with it."""

    @model_validator(mode="before")
    @classmethod
    def _store_optimizer(cls, values: Any) -> Any:
        return _with_optimizer(without_retired(values), default_optimizer)

    @model_validator(mode="after")
    def _is_trainable(self) -> Self:
        if self.origin is None and self.tokens == 0:
            raise ValueError("tokens must be greater than 0.")
        if self.origin is None and method_traits(self.method).status == "imported":
            raise ValueError(f"A {self.method} can be imported but not trained. Choose another --method.")
        return self

    def with_optimizer(self, **changes: object) -> Self:
        return self.model_copy(update={"optimizer": self.optimizer.model_copy(update=changes)})

    @property
    def order_seed(self) -> int:
        return self.seed if self.data_seed is None else self.data_seed


_EXTENDED: dict[str, type[TrainConfig]] = {}


def register_settings(field: str, config: type[TrainConfig]) -> None:
    """Make runs readable whose settings have a field that only ``config`` has."""
    _EXTENDED[field] = config


def parse_train_config(values: object) -> TrainConfig:
    """Validate the saved settings of a run, with the class that was registered for them. Raises ValueError if the
    settings are invalid."""
    given = values if isinstance(values, Mapping) else {}
    fields = [field for field in _EXTENDED if given.get(field) is not None]
    return (_EXTENDED[fields[0]] if fields else TrainConfig).model_validate(values)


PLACE = "{run}"
"""Placeholder for the parent's name in a pattern of run names."""
FINETUNE_LEARNING_RATE = 3e-4
"""Default peak learning rate of fine-tuning."""


class FinetuneConfig(Config):
    """Joint fine-tuning of several runs, one per layer, towards the predictions of the original model."""

    text: TextConfig
    """Dataset to train on."""
    tokens: Count
    """Number of training tokens, such as 2M."""
    name: str = f"{PLACE}-whole"
    """Names of the new runs. {run} stands for the name of the parent. Default: {run}-whole."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimiser settings."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the data order. Default: 0."""
    checkpoint_every: Count = 100_000
    """Tokens between checkpoints. Default: 100k. Fewer are written if they would take over 5 % of the time."""
    log_every: Count = 10
    """Steps between logged metrics. Default: 10."""

    @model_validator(mode="before")
    @classmethod
    def _store_optimizer(cls, values: Any) -> Any:
        return _with_optimizer(values, lambda _tokens: {"learning_rate": FINETUNE_LEARNING_RATE})
