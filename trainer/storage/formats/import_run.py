"""Import of layers from a file, a folder, or a Hugging Face Hub repo.

Layers are identified by file names. Files of a repo are downloaded on demand, and weights are read after the selection.

A layer trained with a folded norm reads n; the MLP of the Hugging Face model reads x = n w + b. So W n + c =
(W / w) x + (c - (W / w) b), row by row.

The outputs of such a layer may be centred over the residual stream's width, as TransformerLens does if every reader is
a LayerNorm. LayerNorms subtract the mean anyway, so nothing needs to be converted.

Shapes: T tokens, I input width.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from sqlalchemy import Engine
from torch import Tensor, nn

from mxd.trainer.config.analysis import ImportConfig
from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.config.training import ImportFormat, Origin, TextConfig, TrainConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.architecture import Architecture, MlpShape
from mxd.trainer.language_model.loading import load_outline
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import load_tokenizer, start_token_id
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.storage.formats.base import ImportedLayer, SourceSettings, layer_of_module
from mxd.trainer.storage.formats.mxd_checkpoint import read_checkpoint
from mxd.trainer.storage.formats.transcoders import (
    CONFIG,
    SAELENS_WEIGHTS,
    SET_CONFIG,
    SPARSIFY_WEIGHTS,
    read_circuit_tracer,
    read_saelens,
    read_sparsify,
)
from mxd.trainer.storage.run import RUN_FILE, TOKENIZER_FOLDER, Run, runs_folder
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.utils.files import (
    atomic_directory,
    atomic_write,
    endpoint,
    explained,
    first_line,
    is_unreachable,
    looks_like_path,
    sha256,
)

MAX_FILES = 100_000
MAX_CONFIG_BYTES = 1 << 20
MAX_LISTED = 12
_TRAINER_STATE = re.compile(r"^(optimizer|lr_scheduler|scheduler|state|rank|rng_state|training_args)\w*\.pt$")
"""Files that trainers write beside their layers, to resume."""
_LAYER_FILE = re.compile(r"^layer_(\d+)\.safetensors$")


@dataclass(frozen=True)
class Source:
    name: str
    """Absolute path, or name of a repo."""
    revision: str | None
    files: tuple[str, ...]
    """Relative names, with ``/`` between folders."""
    fetch: Callable[[str], Path]
    """Returns the local path of a file, which it may download."""


def open_source(source: str) -> Source:
    """Open a file, a folder, or a Hugging Face Hub repo OWNER/NAME, optionally with @REVISION. Raises NotFoundError
    (there is no such file, folder or repo) or UserError (the Hub cannot be reached, or the folder has too many
    files)."""
    path = Path(source).expanduser()
    if path.is_file():
        return Source(str(path.resolve()), None, (path.name,), path.parent.joinpath)
    if path.is_dir():
        names: list[str] = []
        for file in path.rglob("*"):
            if file.is_file():
                names.append(file.relative_to(path).as_posix())
            if len(names) > MAX_FILES:
                raise UserError(f"Too many files in {path}: more than {MAX_FILES:,}. Choose the folder of a layer.")
        return Source(str(path.resolve()), None, tuple(names), path.joinpath)
    name, _, revision = source.partition("@")
    if looks_like_path(source) or name.count("/") != 1:
        raise NotFoundError(f"No such file or folder: {source}. Pass one, or a Hugging Face Hub repo as OWNER/NAME.")
    return _repository(name, revision or None)


def _repository(name: str, revision: str | None) -> Source:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    if is_unreachable():
        raise UserError(
            f"No such file or folder: {name}. The Hugging Face Hub ({endpoint()}) does not respond; check the network."
        )
    try:
        info = HfApi().model_info(name, revision=revision)
    except RepositoryNotFoundError as error:
        raise NotFoundError(f"No such file, folder or Hugging Face Hub repo: {name}.") from error
    except (OSError, HFValidationError, HfHubHTTPError) as error:
        raise UserError(f"Cannot read {name} from the Hugging Face Hub: {first_line(error)}.") from error
    commit = info.sha or revision or "main"

    def download(file: str) -> Path:
        try:
            return Path(hf_hub_download(name, file, revision=commit))
        except (OSError, ValueError, HfHubHTTPError) as error:
            raise UserError(
                f"Cannot download {file} of {name} from the Hugging Face Hub: {first_line(error)}."
            ) from error

    return Source(name, commit, tuple(sibling.rfilename for sibling in info.siblings or ()), download)


@dataclass(frozen=True)
class CheckpointPart:
    format: ImportFormat
    name: str
    """Folder or file within the source; empty for the source itself."""
    layer: int | None
    """Index of the block, if its name states it."""
    read: Callable[[], ImportedLayer]


def _parts(source: Source, name: str) -> Iterator[CheckpointPart]:
    """Layers that a file of a source describes: a checkpoint, or a config beside its weights."""
    folder, _, file = name.rpartition("/")
    within = f"{folder}/" if folder else ""

    def reads(read: Callable[[SourceSettings, Path], ImportedLayer], weights: str) -> Callable[[], ImportedLayer]:
        return lambda: read(_settings(source.fetch(name)), source.fetch(weights))

    if file.endswith(".pt") and not _TRAINER_STATE.match(file):
        yield CheckpointPart("mxd-checkpoint", name, None, lambda: read_checkpoint(source.fetch(name)))
    elif file == CONFIG and (weights := within + SPARSIFY_WEIGHTS) in source.files:
        layer = layer_of_module(folder or Path(source.name).name)
        yield CheckpointPart("sparsify", folder, layer, reads(partial(read_sparsify, part=folder), weights))
    elif file == CONFIG and (weights := within + SAELENS_WEIGHTS) in source.files:
        yield CheckpointPart("saelens", folder, None, reads(read_saelens, weights))
    elif file == SET_CONFIG:
        beside = (other.removeprefix(within) for other in source.files if other.startswith(within))
        for layer in sorted(int(match[1]) for match in map(_LAYER_FILE.match, beside) if match):
            weights = f"{within}layer_{layer}.safetensors"
            read = reads(partial(read_circuit_tracer, layer=layer), weights)
            yield CheckpointPart("circuit-tracer", weights, layer, read)


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without aliases: a few lines of them describe a value of any size."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def _settings(path: Path) -> SourceSettings:
    """Read a config file, YAML or JSON."""
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise UserError(f"Config file too large: {path}. Choose the folder of a layer.")
    with explained(f"Invalid config file: {path}. Download it again.", ValueError, RecursionError, yaml.YAMLError):
        text = path.read_text("utf-8")
        values: Any = yaml.load(text, _PlainLoader) if path.suffix == ".yaml" else json.loads(text)
    if not isinstance(values, dict):
        raise UserError(f"Invalid config file: {path} must be a mapping.")
    return SourceSettings(values, path.name)


def select_part(source: Source, layer: int | None, part: str | None) -> CheckpointPart:
    """Return the selected layer of a source. Raises NotFoundError (there is no layer of a supported format, or not the
    selected one) or UserError (the selection is ambiguous)."""
    parts = [found for name in sorted(source.files) for found in _parts(source, name)]
    if not parts:
        raise NotFoundError(
            f"{source.name} has no layer in a supported format: a .pt checkpoint of the paper's code, cfg.json with "
            "sae.safetensors (sparsify) or sae_weights.safetensors (SAELens), or config.yaml with layer_N.safetensors "
            "(circuit-tracer)."
        )
    matches = [one for one in parts if part is None or one.name.strip("/") == part.strip("/")]
    if layer is not None and len(matches) > 1:
        matches = [one for one in matches if one.layer == layer]
    if len(matches) == 1:
        return matches[0]
    problem = "has no such layer" if not matches else f"has {len(matches)} layers"
    error = NotFoundError if not matches else UserError
    names = ", ".join(one.name or "." for one in parts[:MAX_LISTED])
    more = f" and {len(parts) - MAX_LISTED} more" if len(parts) > MAX_LISTED else ""
    raise error(f"{source.name} {problem}. Choose one with --layer or --part: {names}{more}.")


READERS = {
    "gate.weight": "gate.bias",
    "encoder.weight": "encoder.bias",
    "encoder_gate.weight": "encoder_gate.bias",
    "skip.weight": "output_bias",
}
"""Tensors that multiply the layer's input -> the bias that absorbs the constant part."""
LARGE = 1e3
"""Input so large that the norm's epsilon is negligible."""


@torch.no_grad()
def norm_before(language_model: LanguageModel, layer: int) -> nn.Module | None:
    """Find the norm whose output is the MLP's input, in a forward pass."""
    seen: list[tuple[nn.Module, Tensor]] = []

    def watch(module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append((module, output.clone()))  # some blocks change it in place

    with ExitStack() as stack:
        for module in language_model.architecture.block(layer).modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, Tensor) and weight.dim() == 1:
                stack.callback(module.register_forward_hook(watch).remove)
        read_TI = language_model.mlp_inputs([layer], torch.tensor([[1, 2, 3]]))[layer]
    same_size = ((norm, output.reshape(read_TI.shape)) for norm, output in seen if output.numel() == read_TI.numel())
    return next((norm for norm, output in same_size if torch.equal(output, read_TI)), None)


@torch.no_grad()
def read_affine(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a norm. An RMSNorm is probed, because some store their weight minus one."""
    if isinstance(norm, nn.LayerNorm):
        weight_I = norm.weight.detach().float()
        bias = getattr(norm, "bias", None)
        bias_I = torch.zeros_like(weight_I) if bias is None else bias.detach().float()
        return weight_I.cpu(), bias_I.cpu()
    stored = norm.get_parameter("weight")
    weight_I = norm(torch.full_like(stored, LARGE).unsqueeze(0))[0].float().cpu()
    return weight_I, torch.zeros_like(weight_I)


def unfold(tensors: Mapping[str, Tensor], weight_I: Tensor, bias_I: Tensor) -> dict[str, Tensor]:
    """Convert a layer that reads a norm's output before weight and bias to one that reads it after them. Raises
    UserError if the norm's weight has a zero, so the conversion is impossible."""
    if not bool(weight_I.abs().gt(0).all()):
        raise UserError(
            "The norm before the MLP has a weight of 0, so layers trained with folded norms cannot be converted."
        )
    weight_I, bias_I = weight_I.double(), bias_I.double()
    converted = dict(tensors)
    for name, constant in READERS.items():
        if name in tensors:
            scaled = tensors[name].double() / weight_I
            converted[name] = scaled.float()
            converted[constant] = (converted[constant].double() - scaled @ bias_I).float()
    return converted


NOT_STATED = "not stated"
"""Dataset name of an imported layer whose file states none."""
CONTEXT_LENGTHS = range(8, 65_537)
DEFAULT_CONTEXT_LENGTH = 128


@dataclass(frozen=True)
class ImportResult:
    """Result of ``mxd import``."""

    run: str
    format: str
    source: str
    part: str
    language_model: str
    layer: int
    method: str
    num_experts: int
    k: int


def import_run(config: ImportConfig, data: Path, database: Engine) -> ImportResult:
    """Import a layer as a run. The run directory is written atomically. Raises UserError if the run exists, the source
    has no such layer, or the layer does not fit the MLP."""
    folder = runs_folder(data) / config.name
    if (folder / RUN_FILE).exists():
        raise UserError(f"Run '{config.name}' already exists. Choose another --name.")
    source = open_source(config.source)
    part = select_part(source, config.layer, config.part)
    imported = part.read()
    stated = imported.layer if imported.layer is not None else part.layer
    number = stated if config.layer is None else config.layer
    if number is None:
        raise UserError("The file does not state its layer. Set --layer.")
    if stated not in (None, number):
        raise UserError(f"The file is for layer {stated}, not layer {number}. Omit --layer, or choose another file.")
    shape, tensors = _in_place(imported, config.language_model, number)
    layer = _layer_of(imported, tensors, shape)
    tokenizer = load_tokenizer(config.language_model)
    # The start token of the layer's training, or the language model's own if the layer does not state one.
    special = (getattr(tokenizer, name) for name in imported.start_tokens)
    start_token = next((token for token in special if token in tokenizer.get_vocab()), None)
    settings = TrainConfig(
        name=config.name,
        language_model=config.language_model,
        layer=number,
        text=TextConfig(
            dataset=imported.text or NOT_STATED,
            context_length=imported.context if imported.context in CONTEXT_LENGTHS else DEFAULT_CONTEXT_LENGTH,
            start_token=str(tokenizer.convert_ids_to_tokens(start_token_id(tokenizer, start_token))),
        ),
        tokens=imported.tokens,
        method=imported.method,
        num_experts=imported.num_experts,
        k=imported.k,
        origin=Origin(
            format=part.format,
            source=source.name,
            part=part.name,
            revision=source.revision,
            version=imported.version,
            sha256=sha256(imported.weights),
        ),
    )
    with atomic_directory(folder) as partial:
        tokenizer.save_pretrained(partial / TOKENIZER_FOLDER)
        layer.save(partial)
        atomic_write(partial / RUN_FILE, settings.model_dump_json(indent=1) + "\n")
    register_run(Run.load(folder, data), database)
    place = (config.name, part.format, source.name, part.name, config.language_model, number)
    return ImportResult(*place, imported.method, imported.num_experts, imported.k)


def _in_place(imported: ImportedLayer, source: str, number: int) -> tuple[MlpShape, Mapping[str, Tensor]]:
    """Return the MLP's shape, and the layer's tensors converted to read the MLP's input."""
    if imported.reads == "mlp-input" and not imported.writes_addition and imported.input_norm is None:
        return Architecture(load_outline(source), source).mlp_shape(number), imported.tensors
    language_model = LanguageModel.load(source, "cpu", torch.float32)
    norm = norm_before(language_model, number)
    if imported.writes_addition and not language_model.additions.adds_output(number):
        raise UserError(
            f"The layer writes what a block adds to the residual stream. In {source} this is not the MLP's output, but "
            "a norm or a multiple of it, so the layer cannot replace an MLP."
        )
    if (name := imported.input_norm) is not None:  # architectures name the norm before the MLP differently
        named = getattr(language_model.architecture.block(number), name, None)
        if norm is None or named is not norm:
            raise UserError(
                f"The layer reads the output of {name}, which is not the input of the MLPs of {source}. Set "
                "--language-model to the one it was trained on."
            )
    if imported.reads == "mlp-input":
        return language_model.architecture.mlp_shape(number), imported.tensors
    if norm is None:
        raise UserError(f"The layer reads the norm before the MLP, but layer {number} of {source} has none.")
    # A LayerNorm was not folded: the layer reads its output after weight and bias.
    behind = imported.reads == "norm" and isinstance(norm, nn.LayerNorm)
    return language_model.architecture.mlp_shape(number), (
        imported.tensors if behind else unfold(imported.tensors, *read_affine(norm))
    )


def _layer_of(imported: ImportedLayer, tensors: Mapping[str, Tensor], shape: MlpShape) -> SparseLayer:
    inputs, outputs = tensors["gate.weight"].shape[-1], len(tensors["output_bias"])
    if (inputs, outputs) != (shape.input_width, shape.output_width):
        raise UserError(
            f"The layer has widths {inputs} -> {outputs}, but the MLP has {shape.input_width} -> {shape.output_width}. "
            "Set --language-model and --layer to those it was trained on."
        )
    if (thresholds_N := tensors.get("threshold_N")) is not None and bool((thresholds_N < 0).any()):
        raise UserError("The layer has negative thresholds, which are not supported.")
    hidden = len(tensors["encoder.bias"]) if "encoder.bias" in tensors else shape.hidden_width
    config = LayerConfig(
        method=imported.method,
        input_width=inputs,
        hidden_width=hidden,
        output_width=outputs,
        num_experts=imported.num_experts,
        k=imported.k,
        activation=imported.activation or shape.activation,
        encoder=imported.encoder or shape.encoder,
    )
    with torch.device("meta"):
        layer = build_layer(config)
    requested = {name: value.shape for name, value in layer.state_dict().items()}
    differing = sorted(name for name in requested if name not in tensors or tensors[name].shape != requested[name])
    if differing or requested.keys() != tensors.keys():
        raise UserError(f"The tensors of {imported.weights.name} have inconsistent shapes: {', '.join(differing)}.")
    layer.load_state_dict({name: value.contiguous() for name, value in tensors.items()}, assign=True)
    return layer
