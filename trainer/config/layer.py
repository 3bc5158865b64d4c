"""Kinds of layers, and the settings of a layer, which are saved beside its weights.

The methods of the core are registered here, and their classes in ``mxd.trainer.layers.variants``. Others register
themselves with ``register_method`` when their module is imported. Nothing here imports PyTorch, which takes seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator
from safetensors import SafetensorError, safe_open

from mxd.trainer.config.base import Config, Size, without_retired
from mxd.trainer.errors import NotFoundError
from mxd.trainer.utils.display import suggest
from mxd.trainer.utils.files import explained, read_json

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "sigmoid"]
Encoder = Literal["mlp", "glu"]
Mixing = Literal["paper", "centred"]
Status = Literal["core", "experimental", "imported"]

MOLT_LEVELS = tuple(level for level in range(5) for _ in range(2**level))
"""How often the largest rank is halved, for each transform in a cycle of 31."""
MAX_K_FACTOR = 4
"""Largest number of experts per token of a batch-topk-mxd, as a multiple of K."""


@dataclass(frozen=True)
class RankTraits:
    """How the rank of a low-rank method determines its sizes."""

    default: Callable[[int], int]
    """Default rank for an output width."""
    bottleneck: Callable[[int, int], int]
    """Width of the bottleneck for a number of experts and a rank."""


@dataclass(frozen=True)
class MethodTraits:
    """Facts about a method."""

    summary: str
    """Noun phrase for model cards."""
    status: Status = "core"
    """core: ``mxd train`` trains it. experimental: ``mxd lab train`` does. imported: it is only read from files."""
    has_top_k: bool = True
    """True if the gate keeps the K largest scores of each token, so that a smaller K can be requested."""
    initializes_from_examples: bool = False
    """True if experts are initialised from example tokens by default."""
    mixing: Mixing = "paper"
    """Default mixing. Centred: the median of a C is subtracted, so that no constant mixing can replace the MLP."""
    trains_on_whole_steps: bool = False
    """True if the loss or the gate is not a mean over tokens, so that several processes would train another layer."""
    mixes_hidden: bool = False
    """True for an MxD whose experts scale hidden units, of an encoder without an activation function."""
    rank: RankTraits | None = None
    """Rank of the experts; None if the method has no rank setting."""
    module: str = ""
    """Module that registers the layer classes; empty if the layer registry already has them."""


def transform_ranks(count: int, largest: int) -> tuple[int, ...]:
    """Ranks of ``count`` MOLT transforms: one of rank R, two of R/2, four of R/4 … sixteen of R/16, then R again."""
    return tuple(max(1, largest >> MOLT_LEVELS[number % len(MOLT_LEVELS)]) for number in range(count))


_TRAITS: dict[str, MethodTraits] = {
    "mxd": MethodTraits(
        "a mixture of linear decoders (MxD, arXiv 2505.21364)", initializes_from_examples=True, mixing="centred"
    ),
    "transcoder": MethodTraits("a TopK transcoder", initializes_from_examples=True),
    "skip-transcoder": MethodTraits("a TopK skip transcoder", initializes_from_examples=True),
    "autoencoder": MethodTraits("a TopK autoencoder of the MLP's output", initializes_from_examples=True),
    "batch-topk-mxd": MethodTraits(
        "an MxD with K active experts on average (BatchTopK, arXiv 2412.06410)",
        has_top_k=False,
        initializes_from_examples=True,
        mixing="centred",
        trains_on_whole_steps=True,
    ),
    "molt": MethodTraits(
        "a mixture of low-rank transforms (MOLT)",
        rank=RankTraits(lambda width: max(1, width // 2), lambda count, rank: sum(transform_ranks(count, rank))),
    ),
    "relu-mxd": MethodTraits("an MxD without a top-k", "imported", has_top_k=False),
    "jumprelu-transcoder": MethodTraits(
        "a transcoder with a threshold per feature (JumpReLU)", "imported", has_top_k=False
    ),
    "jumprelu-skip-transcoder": MethodTraits(
        "a skip transcoder with a threshold per feature (JumpReLU)", "imported", has_top_k=False
    ),
}


def register_method(method: str, traits: MethodTraits) -> None:
    """Make a method available that is defined outside the core."""
    _TRAITS[method] = traits


def methods(*statuses: Status) -> tuple[str, ...]:
    """Names of the registered methods with one of some statuses, in the order of the statuses."""
    return tuple(name for status in statuses for name, traits in _TRAITS.items() if traits.status == status)


def method_traits(method: str) -> MethodTraits:
    """Facts about a method. Raises KeyError if there is no such method."""
    return _TRAITS[method]


def _check_known(method: str) -> str:
    if method not in _TRAITS:
        raise ValueError(f"Unknown method.{suggest(method, _TRAITS)} Known methods: {', '.join(_TRAITS)}.")
    return method


Method = Annotated[str, AfterValidator(_check_known)]
"""Name of a registered method."""


def max_active(method: Method, k: int) -> int:
    """Number of columns of a routing: the most experts that one token can have."""
    return MAX_K_FACTOR * k if method == "batch-topk-mxd" else k


class LayerConfig(Config):
    """Everything needed to build a sparse layer before its weights are read."""

    method: Method = "mxd"
    """Kind of layer."""
    input_width: Size
    """Input width I of the layer: the MLP's input width, or for an autoencoder the MLP's output width."""
    hidden_width: Size
    """Hidden width H of the shared encoder."""
    output_width: Size
    """Output width O of the MLP."""
    num_experts: Size
    """Number of experts N."""
    k: Size
    """Largest number of active experts per token, K; the mean number for a batch-topk-mxd."""
    activation: Activation
    """Activation function of the encoder. gelu_tanh is the tanh approximation of GELU; silu is also known as Swish."""
    encoder: Encoder
    """Encoder: mlp is act(x E), glu is act(x E_g) * (x E)."""
    mixing: Mixing = "paper"
    """Mixing of an MxD: paper is a C; centred is a C minus its median over the training tokens."""
    rank: Size | None = None
    """Rank of the experts; for a molt, the largest rank. None if the method has no rank."""
    min_k: Size | None = None
    """Smallest K that the layer was trained for (Matryoshka-K). None if it was trained with K only."""

    @model_validator(mode="before")
    @classmethod
    def _drop_retired(cls, values: Any) -> Any:
        return without_retired(values)


CONFIG_FILE = "layer.json"
WEIGHTS_FILE = "layer.safetensors"


def read_layer_config(folder: Path) -> LayerConfig:
    """Read the config beside a layer's weights. Raises NotFoundError (the file does not exist) or UserError (the file
    is not a layer config)."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise NotFoundError(f"No trained layer in {folder}: {CONFIG_FILE} is missing. Train one with 'mxd train'.")
    with explained(f"Invalid layer config: {path}. Restore it from a copy or train the run again.", ValueError):
        return LayerConfig.model_validate(read_json(path))


def stored_bits(weights: Path) -> int | None:
    """Bits per weight of a layer whose matrices are stored rounded, as ``layers.quantization`` does; else None."""
    try:
        with safe_open(weights, "np") as file:
            return 5 if any(file.get_slice(name).get_dtype() == "U8" for name in file.keys()) else None  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
