"""Settings of indexing, evaluation, circuits and the other measurements on a trained run."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from mxd.trainer.config.base import Config, Count, RunName, Size, parse_count
from mxd.trainer.config.training import TextConfig

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class TokenTarget(Config):
    """Logit of a next token minus the mean over the vocabulary."""

    kind: Literal["token"] = "token"
    token: TokenId | None = None
    """Id of the token. Default: the most probable one."""


class DifferenceTarget(Config):
    """Logit of a next token minus that of another one."""

    kind: Literal["difference"] = "difference"
    token: TokenId
    """Id of the token."""
    other: TokenId
    """Id of the token to compare with."""


class SetTarget(Config):
    """Log-probability, in nats, that the next token is one of several."""

    kind: Literal["set"] = "set"
    tokens: Annotated[tuple[TokenId, ...], Field(min_length=1, max_length=1000)]
    """Ids of the tokens."""


class ContinuationTarget(Config):
    """Log-probability of a continuation of the prompt, in nats, summed over its tokens."""

    kind: Literal["continuation"] = "continuation"
    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    """The continuation, with its leading space."""


class ExpertTarget(Config):
    """Activation of an expert on the last token of the prompt."""

    kind: Literal["expert"] = "expert"
    run: RunName
    """Run of the expert."""
    expert: Annotated[int, Field(ge=0)]
    """Number of the expert."""


Target = Annotated[
    TokenTarget | DifferenceTarget | SetTarget | ContinuationTarget | ExpertTarget, Field(discriminator="kind")
]


def target_tokens(target: Target) -> tuple[int, ...]:
    """Ids of the next tokens that a target names."""
    match target:
        case TokenTarget(token=token):
            return () if token is None else (token,)
        case DifferenceTarget(token=token, other=other):
            return token, other
        case SetTarget(tokens=tokens):
            return tokens
        case _:
            return ()


Errors = Literal["kept", "dropped"]
MOST_TOKENS = 2048
"""Maximum number of tokens that a circuit reads. Time and memory grow with it."""
WantedText = Annotated[str, Field(min_length=1, max_length=20_000)]
UNRELATED = (
    "The committee met on Tuesday to discuss the budget for the coming year. Most members agreed that the road repairs "
    "could not wait until spring.",
    "To make the dough, mix two cups of flour with a pinch of salt, then add warm water and knead it for ten minutes.",
    "def area(width, height):\n    return width * height\n\nprint(area(3, 4))",
)
FUNCTION_WORDS = frozenset("a an the that which of in on at to for from with by about and or is are as".split())  # noqa: SIM905
"""Words of a search in plain words that describe nothing."""
BENCHMARK_FOLDER, BENCHMARK_SUMMARY = "benchmark", "summary.json"
"""Folder in the data folder where ``mxd benchmark`` writes by default, and its file with the means over data sets."""


class CircuitConfig(Config):
    """Prompt and target of a circuit, and its size."""

    prompt: Annotated[str, Field(max_length=200_000)]
    """Text to trace."""
    target: Target = TokenTarget()
    """Target to explain. Default: the logit of the most probable next token."""
    position: Annotated[int, Field(ge=0)] | None = None
    """Position after which the target is predicted; 0 is the start token. Default: the last token."""
    errors: Errors = "kept"
    """Reconstruction errors. kept: add each layer's error, so that all activations are those of the original model.
    dropped: use the outputs of the layers alone. Default: kept."""
    nodes: Annotated[int, Field(ge=1, le=100)] = 20
    """Number of experts to show, those with the largest predicted effects, 1 to 100. Default: 20."""


class IndexConfig(Config):
    """Pass over a dataset that collects statistics and top examples of every expert."""

    text: TextConfig
    """Dataset to read."""
    tokens: Count
    """Number of tokens to read, such as 1M, from documents in random order (see --seed)."""
    top_examples: Annotated[int, Field(gt=0, le=1000)] = 20
    """Number of top examples per expert, at most one per sequence. Default: 20."""
    examples_per_bin: Annotated[int, Field(ge=0, le=100)] = 3
    """Number of random examples per expert and activation bin. Default: 3."""
    top_tokens: Annotated[int, Field(gt=0, le=100)] = 12
    """Number of tokens per expert on which it fires most often. Default: 12."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the data order and of the random examples. Default: 0."""


class AblationConfig(Config):
    """Ablation and amplification of experts on their indexed examples."""

    experts: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Numbers of the experts to measure, together with a random expert of similar density for each. Default: all
    active experts."""
    examples_per_bin: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of examples per activation bin, each weighted by the active tokens it represents. Default: 1. Raise it for
    narrower intervals."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the baselines: random experts and random directions. Default: 0."""


class SteeringEvaluationConfig(Config):
    """Steering with a sample of experts at several strengths, against random baselines."""

    # Databases hold it as ``experts``. As a flag that would mean numbers of experts, as in ``mxd ablate``.
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    experts: Annotated[int, Field(ge=1, le=10_000, alias="sampled_experts")] = 12
    """Number of experts, sampled from those that are not dead. Default: 12."""
    strengths: Annotated[tuple[Annotated[float, Field(gt=0, le=1000)], ...], Field(min_length=1)] = (1.0, 3.0, 6.0)
    """Strengths, in units of each expert's 99th-percentile gate activation. Default: 1,3,6."""
    prompts: Annotated[tuple[str, ...], Field(min_length=1)] = ("One day,", "The", "In the")
    """Texts to continue."""
    samples: Annotated[int, Field(ge=1, le=64)] = 3
    """Number of samples per prompt. Default: 3."""
    max_tokens: Annotated[int, Field(ge=1, le=1024)] = 24
    """Number of new tokens per sample. Default: 24."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the experts, the random directions and the samples. Default: 0."""


class EvaluateConfig(Config):
    """Evaluation of a run on held-out text."""

    text: TextConfig
    """Dataset to read."""
    tokens: Count
    """Number of tokens to read, such as 100k: from the beginning of files of up to 32 MiB, from random documents of
    larger ones."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the bootstrap, of the sampled experts and of the sample of a large dataset. Default: 0."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 1000
    """Number of bootstrap resamples. Default: 1,000."""
    prompts: Annotated[int, Field(ge=0, le=4096)] = 32
    """Number of sequences whose beginning is continued greedily, to compare the continuations. Default: 32."""
    jacobian_tokens: Annotated[int, Field(ge=0, le=65_536)] = 256
    """Number of tokens at which the Jacobians of layer and MLP are compared, 0 for none. Default: 256."""
    always_on: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Minimum density of an expert that counts as always on. Default: 0.9."""
    k: Size | None = None
    """Number of active experts per token, at most the run's K. Default: the run's K."""


class RecurrenceConfig(Config):
    """Comparison of the experts of one layer trained from several random starts."""

    text: TextConfig
    """Dataset to read."""
    tokens: Count
    """Number of tokens to read, such as 100k: from the beginning of files of up to 32 MiB, from random documents of
    larger ones."""
    min_tokens: Annotated[int, Field(ge=2)] = 20
    """Minimum number of active tokens of an expert to measure it. Default: 20."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the chance level, of the bootstrap and of the sample of a large dataset. Default: 0."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 1000
    """Number of bootstrap resamples. Default: 1,000."""


class ContrastConfig(Config):
    """Comparison of the activation densities of all experts on two texts."""

    tokens: Count = 100_000
    """Maximum number of tokens per text, from random documents. Default: 100k."""
    min_tokens: Annotated[int, Field(ge=1)] = 20
    """Minimum number of active tokens, in both texts together, to test an expert. Default: 20."""
    min_units: Annotated[int, Field(ge=2)] = 10
    """Minimum number of documents with an active token, in both texts together, to test an expert. Default: 10."""
    examples: Annotated[int, Field(ge=0, le=20)] = 3
    """Number of examples per expert and text. Default: 3."""
    shown: Annotated[int, Field(ge=0, le=1000)] = 20
    """Number of experts per text that are shown with examples. Default: 20."""
    shuffles: Annotated[int, Field(ge=0, le=1000)] = 20
    """Number of random assignments of documents to the texts, which show how many experts are found by chance.
    Default: 20."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the documents and the assignments. Default: 0."""


class FindConfig(Config):
    """Search for experts by their effect on the probability of wanted text."""

    prompts: Annotated[tuple[Annotated[str, Field(max_length=200_000)], ...], Field(min_length=1, max_length=16)]
    """Texts before the wanted one, at most 16. Effects are averaged over them."""
    wanted: Annotated[tuple[WantedText, ...], Field(max_length=16)] = ()
    """Continuations that shall become more probable, with their leading space, at most 16. Any one of them counts."""
    unwanted: Annotated[tuple[WantedText, ...], Field(max_length=16)] = ()
    """Continuations that shall become less probable, at most 16."""
    held_out: Annotated[tuple[WantedText, ...], Field(max_length=3)] = ()
    """Other texts before a wanted one, at most 3. Found experts are measured on them; the search does not use them."""
    probability: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Probability to reach, of the wanted texts or, without any, of no unwanted one. Default: 0.5."""
    max_price: Annotated[float, Field(gt=0, le=10)] = 0.2
    """Largest predicted price of a suggested edit: KL divergence on unrelated text, in nats per token. Default: 0.2."""
    hits: Annotated[int, Field(ge=1, le=100)] = 8
    """Number of experts to return, 1 to 100. Default: 8."""
    unrelated: Annotated[tuple[WantedText, ...], Field(min_length=1, max_length=16)] = UNRELATED
    """Texts on which the price is measured, at most 16. Default: three passages of prose, instructions and code."""

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        if not (self.wanted or self.unwanted):
            raise ValueError("give at least one wanted or unwanted text")
        return self


class ImportConfig(Config):
    """Import of a layer that another library trained."""

    source: str
    """File, folder or Hub repository (OWNER/NAME or OWNER/NAME@REVISION) to import."""
    name: RunName
    """Name of the new run."""
    language_model: str
    """Hub name or local folder of the language model that the layer was trained on."""
    layer: Annotated[int, Field(ge=0)] | None = None
    """Index of the block whose MLP the layer replaces, from 0. Default: as the source states."""
    part: str | None = None
    """Folder or file of the layer inside the source. Required if the source holds several layers."""


class ProbeConfig(Config):
    """Single-expert probes on labelled texts."""

    labels: str
    """Labelled texts: a .jsonl or .csv file (also .gz or .zst) with one text and its label per line or row."""
    label_column: str = "label"
    """Field or column of the label. Default: label."""
    text_column: str = "text"
    """Field or column of the text. Default: text."""
    window: Literal["first", "last"] = "first"
    """End of a long text to read: first or last tokens. Default: first."""
    tokens: Annotated[int, Field(ge=5, le=65_536)] = 128
    """Number of tokens to read per text, 5 to 65,536. Default: 128."""
    level: Literal["text", "token"] = "text"
    """Unit of classification. text: gate activations averaged over a text. token: gate activations of single tokens,
    four per text. Default: text."""
    limit: Count = 10_000
    """Maximum number of texts, sampled at random. Default: 10,000."""
    candidates: Annotated[int, Field(ge=5, le=10_000)] = 50
    """Number of candidate experts per class: those with the largest difference between class means. Default: 50."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the sample, the train/test split and the random gate. Default: 0."""


class BenchmarkConfig(Config):
    """Sparse probes on the data sets of the package sae-probes, a benchmark made by others."""

    datasets: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Data sets, such as 105_click_bait; repeatable. Default: all 113."""
    texts: Annotated[int, BeforeValidator(parse_count), Field(ge=200)] | None = None
    """Number of texts per data set, half of each class, at least 200. Default: all texts, up to 5,000."""
    tokens: Annotated[int, Field(ge=2, le=65_536)] = 1024
    """Number of tokens to read at the end of each text. Default: 1,024, as in sae-probes."""
    units: Annotated[tuple[Annotated[int, Field(ge=1, le=512)], ...], Field(min_length=1)] = (1, 5, 16)
    """Numbers of experts, features or neurons per probe. Default: 1, 5 and 16."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1)] = (42, 43, 44)
    """Random seeds of the split into training and test texts, of the probe and of the random gate. Default: 42, 43
    and 44."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 10_000
    """Number of bootstrap resamples over data sets. Default: 10,000."""
