"""Conversion of layers that were trained with folded norms.

A layer trained with a folded norm reads n; the MLP of the Hugging Face model reads x = n w + b. So W n + c =
(W / w) x + (c - (W / w) b), row by row.

The outputs of such a layer may be centred over the residual stream's width, as TransformerLens does if every reader is
a LayerNorm. LayerNorms subtract the mean anyway, so nothing needs to be converted.

Shapes: T tokens, I input width.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from sqlalchemy import Engine
from torch import Tensor, nn

from mxd.trainer.config import LayerConfig, Origin, TextConfig, TrainConfig
from mxd.trainer.config.analysis import ImportConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture, MlpShape
from mxd.trainer.language_model.loading import load_outline
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import load_tokenizer, start_token_id
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.storage.formats.base import ImportedLayer
from mxd.trainer.storage.formats.sources import open_source, select_part
from mxd.trainer.storage.run import RUN_FILE, TOKENIZER_FOLDER, Run, runs_folder
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.utils.files import atomic_directory, atomic_write, sha256

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
        return language_model.mlp_shape(number), imported.tensors
    if norm is None:
        raise UserError(f"The layer reads the norm before the MLP, but layer {number} of {source} has none.")
    # A LayerNorm was not folded: the layer reads its output after weight and bias.
    behind = imported.reads == "norm" and isinstance(norm, nn.LayerNorm)
    return language_model.mlp_shape(number), (
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
