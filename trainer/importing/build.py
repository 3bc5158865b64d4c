"""From files of another program to a run of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from sqlalchemy import Engine
from torch import Tensor

from trainer.anatomy import Anatomy, MlpShape
from trainer.config import LayerConfig, Origin, TextConfig, TrainConfig
from trainer.errors import UserError
from trainer.files import whole_folder, write_whole
from trainer.importing.config import ImportConfig
from trainer.importing.found import Found, digest
from trainer.importing.norms import affine_of, norms_around, unfolded
from trainer.importing.registry import Part, choose
from trainer.importing.sources import Source, open_source
from trainer.language_model import LanguageModel
from trainer.layers.registry import build_layer
from trainer.layers.sparse import SparseLayer
from trainer.loading import load_outline
from trainer.registration import register_run
from trainer.run import RUN_FILE, TOKENIZER_FOLDER, Run, runs_folder
from trainer.tokens import load_tokenizer

NOT_STATED = "not stated"
"""Stands for the text that an imported layer was fitted on where its file names none."""
CONTEXTS = range(8, 65_537)
"""Tokens of a sequence that a run may have."""
USUAL_CONTEXT = 128


@dataclass(frozen=True)
class ImportResult:
    """What ``mxd import`` reports."""

    run: str
    format: str
    source: str
    part: str
    language_model: str
    layer: int
    method: str
    num_experts: int
    k: int


def import_run(config: ImportConfig, data: Path, store: Engine) -> ImportResult:
    """Make a run of a layer that another program fitted.

    Args:
        config: which layer, of which language model, under which name.
        data: data folder that the run is written into, all at once.
        store: where it is entered.

    Raises:
        UserError: the run exists, the source holds no such layer, or it cannot stand for that MLP.
    """
    folder = runs_folder(data) / config.name
    if (folder / RUN_FILE).exists():
        raise UserError(f"The run {config.name} exists; choose another --name.")
    source = open_source(config.source)
    part = choose(source, config.layer, config.part)
    found = part.read()
    number = _layer_number(found, part, config.layer)
    shape, tensors = _in_place(found, config.language_model, number)
    layer = _layer_of(found, tensors, shape)
    settings = TrainConfig(
        name=config.name,
        language_model=config.language_model,
        layer=number,
        text=TextConfig(text=found.text or NOT_STATED, context=_context(found)),
        tokens=found.tokens,
        method=found.method,
        num_experts=found.num_experts,
        k=found.k,
        origin=_origin(part, source, found),
    )
    _write(folder, settings, layer)
    register_run(Run.load(folder, data), store)
    return ImportResult(
        run=config.name,
        format=part.format,
        source=source.name,
        part=part.name,
        language_model=config.language_model,
        layer=number,
        method=found.method,
        num_experts=found.num_experts,
        k=found.k,
    )


def _layer_number(found: Found, part: Part, wanted: int | None) -> int:
    stated = found.layer if found.layer is not None else part.layer
    if stated is None and wanted is None:
        raise UserError("The file does not say which layer it is of; give --layer.")
    if stated is not None and wanted is not None and stated != wanted:
        raise UserError(
            f"The file is of layer {stated}, not of layer {wanted}; leave --layer out or choose another file."
        )
    number = stated if wanted is None else wanted
    assert number is not None
    return number


def _in_place(found: Found, source: str, number: int) -> tuple[MlpShape, Mapping[str, Tensor]]:
    """The MLP's shape, and the layer's tensors where it reads what that MLP reads."""
    if found.reads == "mlp-input" and not found.after_post_norm:
        return Anatomy(load_outline(source), source).mlp_shape(number), found.tensors
    language_model = LanguageModel.load(source, "cpu", torch.float32)
    around = norms_around(language_model, number)
    if found.after_post_norm and around.behind is not None:
        raise UserError(
            f"The layer writes behind the norm that {source} has after its MLPs, so it cannot stand in for one."
        )
    if found.reads == "mlp-input":
        return language_model.mlp_shape(number), found.tensors
    if around.before is None:
        raise UserError(f"No norm was found in front of the MLP of layer {number} of {source}, and the layer reads it.")
    affine = affine_of(around.before)
    behind = found.reads == "norm" and affine.centres
    return language_model.mlp_shape(number), found.tensors if behind else unfolded(found.tensors, affine)


def _layer_of(found: Found, tensors: Mapping[str, Tensor], shape: MlpShape) -> SparseLayer:
    inputs, outputs = tensors["gate.weight"].shape[-1], len(tensors["output_bias"])
    if (inputs, outputs) != (shape.input_width, shape.output_width):
        raise UserError(
            f"The layer reads {inputs} numbers and writes {outputs}, the MLP {shape.input_width} and "
            f"{shape.output_width}; give the --language-model and --layer that it was fitted to."
        )
    if (thresholds_N := tensors.get("threshold_N")) is not None and bool((thresholds_N < 0).any()):
        raise UserError("The layer has thresholds below 0, so coefficients may be negative, which no method here has.")
    hidden = len(tensors["encoder.bias"]) if "encoder.bias" in tensors else shape.hidden_width
    config = LayerConfig(
        method=found.method,
        input_width=inputs,
        hidden_width=hidden,
        output_width=outputs,
        num_experts=found.num_experts,
        k=found.k,
        activation=found.activation or shape.activation,
        encoder=found.encoder or shape.encoder,
    )
    with torch.device("meta"):
        layer = build_layer(config)
    wanted = {name: value.shape for name, value in layer.state_dict().items()}
    differing = sorted(name for name in wanted if name not in tensors or tensors[name].shape != wanted[name])
    if differing or wanted.keys() != tensors.keys():
        raise UserError(f"The tensors of {found.weights.name} do not fit together ({', '.join(differing)}).")
    layer.load_state_dict({name: value.contiguous() for name, value in tensors.items()}, assign=True)
    return layer


def _context(found: Found) -> int:
    return found.context if found.context is not None and found.context in CONTEXTS else USUAL_CONTEXT


def _origin(part: Part, source: Source, found: Found) -> Origin:
    return Origin(
        format=part.format,
        source=source.name,
        part=part.name,
        revision=source.revision,
        version=found.version,
        sha256=digest(found.weights),
    )


def _write(folder: Path, config: TrainConfig, layer: SparseLayer) -> None:
    tokenizer = load_tokenizer(config.language_model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder) as partial:
        tokenizer.save_pretrained(partial / TOKENIZER_FOLDER)
        layer.save(partial)
        write_whole(partial / RUN_FILE, config.model_dump_json(indent=1) + "\n")
