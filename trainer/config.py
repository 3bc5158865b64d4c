"""Every setting of the trainer, as frozen pydantic models.

The docstring under a field is its documentation and its ``--help`` text, and names its unit. Unknown settings are
refused. ``LayerConfig`` says what a layer is and is saved beside its weights; the others say what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trainer.counts import Count as Count
from trainer.counts import Size as Size
from trainer.counts import parse_count as parse_count
from trainer.gate_config import GateConfig
from trainer.methods import Activation as Activation
from trainer.methods import Encoder as Encoder
from trainer.methods import FittedMethod as FittedMethod
from trainer.methods import ImportedMethod as ImportedMethod
from trainer.methods import Method as Method
from trainer.protect_config import ProtectConfig

ImportFormat = Literal["mxd-checkpoint", "sparsify", "saelens", "circuit-tracer"]
Start = Literal["auto", "paper", "encoder", "full", "examples"]
EditMode = Literal["scale", "add", "set", "off"]
Apply = Literal["on-top", "replace"]
Scope = Literal["all", "generated", "prompt"]
WhenShort = Literal["fail", "repeat"]
Dtype = Literal["float32", "bfloat16", "float16", "float64"]

SPREAD = "spread"
"""Device name that stands for all of them: GPUs first, then main memory, then disk."""
INSTALLED_SAMPLE = Path(__file__).resolve().parent / "sample"
"""Where a wheel has the shipped run; a checkout has no such folder."""
SAMPLE = INSTALLED_SAMPLE if INSTALLED_SAMPLE.is_dir() else Path(__file__).resolve().parents[1] / "data" / "demo"
"""Data folder of the shipped run, which is found by its name from everywhere; only to be read."""


DEFAULT_SPAN = 2
"""Layers that a cross-layer-mxd writes where nothing is said."""


class Config(BaseModel):
    """Base of every config: immutable, strict about names, documented by attribute docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


class LayerConfig(Config):
    """What a sparse layer is: enough to build it again before its weights are read."""

    method: Method = "mxd"
    input_width: Size
    """I, width of the MLP's input."""
    hidden_width: Size
    """H, hidden width of the expert's shared encoder."""
    output_width: Size
    """O, width of the MLP's output; of a cross-layer-mxd that of all outputs that it writes, side by side."""
    num_experts: Size
    """N."""
    k: Size
    """K, the most experts that are active on a token; of a batch-topk-mxd or jumprelu-mxd, how many are on average."""
    activation: Activation
    """Of the encoder; tanh-GELU is gelu_tanh, SiLU is also known as Swish."""
    encoder: Encoder
    """mlp: act(x E). glu: act(x E_g) * (x E)."""
    rank: Size | None = None
    """R, the rank of an expert of a low-rank-mxd, the side of the cores of a tensor-ring-mxd, or the largest rank of a
    molt; no other method has one."""
    smallest_k: Size | None = None
    """The smallest K that the layer was fitted to be used with; None where it was fitted with its K alone."""
    gate: GateConfig = GateConfig()
    """How the K of N experts are found."""
    span: Size | None = None
    """How many MLPs a cross-layer-mxd writes, from the one that it reads on; no other method has such a number."""

    @model_validator(mode="after")
    def _writes_whole_outputs(self) -> Self:
        if (self.span is None) == (self.method == "cross-layer-mxd"):
            raise ValueError("span goes with the method cross-layer-mxd.")
        if self.output_width % (self.span or 1):
            raise ValueError("output_width must be a multiple of span.")
        return self


class TextConfig(Config):
    """Which text, and how it becomes token sequences."""

    text: str
    """A .txt, .jsonl, .csv or .parquet file (but for .parquet also .gz or .zst), a folder of them, or a data set on the
    hub, as NAME or NAME:SUBSET."""
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


class CollapseConfig(Config):
    """What is done against experts that do nothing, all do the same, or leave the work to a few; nothing by default."""

    k_spread: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Random-K: on each step K is drawn evenly from K less to K plus this share of it; the paper's is 0.5."""
    balance: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the load-balancing loss: 1 where all experts are used alike, N where one does everything."""
    diversity: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the mean squared cosine between what different experts write."""
    revive_after: Count | None = None
    """Tokens without a single activation after which an expert begins again at a token that is answered badly."""


RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Name of a run, of its folder and in the store."""


class Origin(Config):
    """Where an imported layer came from."""

    format: ImportFormat
    source: str
    """The file, folder or repository."""
    part: str
    """Which folder or file of it; empty where it is the source itself."""
    revision: str | None = None
    """Commit of a repository."""
    version: str | None = None
    """Of the program that wrote it, where it says so."""
    sha256: str
    """Of the file with the weights."""


class TrainConfig(Config):
    """Everything that determines a fitted run."""

    name: RunName
    """Name of the run, of its folder and in the store."""
    language_model: str
    """Hub name or local folder."""
    language_model_dtype: Dtype | None = None
    """In which it is read while the layer is fitted; None where that was not written down."""
    layer: Annotated[int, Field(ge=0, lt=2**15)]
    """Which block's MLP, from 0."""
    text: TextConfig
    tokens: Annotated[int, BeforeValidator(parse_count), Field(ge=0)]
    """Tokens to fit on; of an imported run 0 where its source does not say how many there were."""
    method: Method = "mxd"
    num_experts: int | None = None
    """N; by default 32 I for transcoders, and as many as match their parameters for the other methods."""
    k: Size = 32
    """K, the most experts that are active on a token; a relu-mxd has no limit, a batch-topk-mxd or jumprelu-mxd
    keeps it on average."""
    rank: Size | None = None
    """R: of a low-rank-mxd by default a quarter of the output's width, of a tensor-ring-mxd the root of that; of a molt
    the largest, by default half the output's width."""
    smallest_k: Size | None = None
    """Matryoshka-K: the layer is fitted to answer with its K strongest experts, with half as many, and so on down to
    this; by default with K alone."""
    gate: GateConfig = GateConfig()
    """How the K of N experts are found."""
    span: Annotated[int, Field(ge=1, le=256)] | None = None
    """Of a cross-layer-mxd: how many layers' MLPs it writes, from --layer on; by default 2."""
    start: Start = "auto"
    """examples: each expert starts as one token of the text, its gate at the input, what it writes at the output.
    paper: all as torch's Linear. encoder: E starts at the original MLP's (faithful early, but its routing does little).
    full: D too (the trap: faithful at once, and the routing does nothing). auto: examples, and paper for a method whose
    experts cannot start as examples."""
    optimizer: OptimizerConfig = OptimizerConfig()
    collapse: CollapseConfig = CollapseConfig()
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the starting values."""
    text_seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Of the order of the text; by default the same seed. Runs with the same order can be fitted together."""
    checkpoint_every: Count = 500_000
    """Tokens between checkpoints."""
    log_every: Count = 50
    """Steps between logged metrics."""
    origin: Origin | None = None
    """Of an imported run; one that was fitted here has none."""
    began_as: tuple[RunName, ...] = ()
    """Of a run that was fine-tuned: the run that it began as, then those whose layers were in place with its own."""
    next_token_weight: Annotated[float, Field(ge=0)] = 0.0
    """In fine-tuning, of the next-token loss beside the KL divergence from the untouched language model."""
    protected: ProtectConfig | None = None
    """How passages are protected by it; ``began_as`` names the runs that were moved together."""

    @model_validator(mode="after")
    def _can_be_fitted(self) -> Self:
        if self.origin is None and self.tokens == 0:
            raise ValueError("tokens must be greater than 0.")
        if self.origin is None and self.method in get_args(ImportedMethod):
            raise ValueError(f"A {self.method} can be imported but not fitted; choose another --method.")
        return self

    @property
    def layers(self) -> range:
        """Whose MLPs it writes; it reads the input of the first."""
        written = (self.span or DEFAULT_SPAN) if self.method == "cross-layer-mxd" else 1
        return range(self.layer, self.layer + written)

    @property
    def order_seed(self) -> int:
        """Of the order of the text."""
        return self.seed if self.text_seed is None else self.text_seed


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


Strength = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]
"""How far an edit goes."""


class InfluenceConfig(Config):
    """Measuring what experts do on the contexts that an index has kept of them."""

    per_interval: Annotated[int, Field(ge=1, le=100)] = 1
    """Contexts read of each interval of coefficients; each counts for as many active tokens as it stands for."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the random experts and random directions that are compared with."""


class SteeringEvaluationConfig(Config):
    """Turning a sample of experts up at several strengths, to see what becomes of texts."""

    experts: Annotated[int, Field(ge=1, le=10_000)] = 12
    """Experts, drawn at random among the active ones."""
    strengths: Annotated[tuple[Annotated[float, Field(gt=0, le=1000)], ...], Field(min_length=1)] = (1.0, 3.0, 6.0)
    """In units of each expert's 99th percentile."""
    prompts: Annotated[tuple[str, ...], Field(min_length=1)] = ("One day,", "The", "In the")
    """Texts to continue."""
    samples: Annotated[int, Field(ge=1, le=64)] = 3
    """Continuations of each prompt."""
    max_tokens: Annotated[int, Field(ge=1, le=1024)] = 24
    """New tokens of each."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the draw of experts, the random directions and the continuations."""


class EvaluateConfig(Config):
    """How a run is measured on text that it was not fitted on."""

    text: TextConfig
    tokens: Count
    """Tokens to read."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the bootstrap, and of which experts are sampled."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 1000
    """Of the bootstrap."""
    prompts: Annotated[int, Field(ge=0, le=4096)] = 32
    """Sequences whose beginning is continued greedily, to compare the continuations."""
    always_on: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Usage from which an expert counts as always on."""
    k: Size | None = None
    """K', experts of a token that are let through, the strongest first; by default the run's K."""


class Edit(Config):
    """A change to the coefficient of one expert."""

    expert: Annotated[int, Field(ge=0)]
    """Its id."""
    mode: EditMode
    """scale: multiply the live coefficient. add: add to it. set: put a constant in its place. off: zero."""
    strength: Strength = 1.0
    """The factor of scale; for add and set, in units of the expert's 99th percentile. Unused by off."""
    run: str | None = None
    """Name of the run whose expert it is; by default the run that is steered. Others must be of other layers."""


class Sampling(Config):
    """How the next token is chosen. Both arms use the same random numbers, so they differ by the edits alone."""

    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """New tokens at most."""
    temperature: Annotated[float, Field(ge=0, le=5)] = 0.7
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Smallest set of tokens that holds this probability."""
    top_k: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Most probable tokens to choose from; 0 is all."""
    repetition_penalty: Annotated[float, Field(ge=0.5, le=3)] = 1.1
    """Above 1, tokens that have been used are less likely."""
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    stop: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Texts at which generation ends."""
    samples: Annotated[int, Field(ge=1, le=16)] = 1
    """Continuations of each arm; sample n uses the seed plus n."""


class SteeringConfig(Config):
    """A prompt, what to change, and how to go on from it."""

    prompt: Annotated[str, Field(max_length=200_000)]
    edits: Annotated[tuple[Edit, ...], Field(max_length=64)] = ()
    apply: Apply = "on-top"
    """on-top: the untouched MLP plus the difference that the edits make. replace: the run's layer in its place."""
    scope: Scope = "all"
    """Which tokens the edits touch: all, generated ones only, or the prompt's only."""
    positions: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Where given, edits touch only these tokens of the prompt (0 is the start token), whatever the scope."""
    k: Size | None = None
    """K', experts of a token that the gate of the steered run lets through, the strongest first; by default its K."""
    sampling: Sampling = Sampling()


class DoseConfig(SteeringConfig):
    """The same prompt with one edit at several strengths."""

    edit: Annotated[int, Field(ge=0)] = 0
    """Which of the edits is varied, from 0; its own strength plays no part."""
    strengths: Annotated[tuple[Strength, ...], Field(min_length=1, max_length=12)] = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
    sampling: Sampling = Sampling(max_tokens=24, samples=4)
    """Short and several: enough to tell a nudge from a wreck."""
