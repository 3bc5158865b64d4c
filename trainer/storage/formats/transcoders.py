"""Transcoders in the formats of SAELens, sparsify and circuit-tracer; steering vectors.

**SAELens 6**: a folder with ``cfg.json`` and ``sae_weights.safetensors``. Its hooks are TransformerLens's, without
folded norms unless ``metadata`` says so.

    W_enc [I, N], b_enc [N]                    gate
    W_dec [N, O], b_dec [O]                    directions and output bias
    threshold [N]                              for JumpReLU
    W_skip [O, I]                              for skip transcoders

**sparsify** of EleutherAI (``eai-sparsify`` 1.x): one folder per hookpoint, the name of the module that the layer
replaces, with ``cfg.json`` and ``sae.safetensors``.

    encoder.weight [N, I], encoder.bias [N]    gate
    W_dec [N, O], b_dec [O], W_skip [O, I]     as above

Its fork clt-training adds an MxD that mixes hidden units, in two branches with the same tensor names:

    W_mxd_in [H, I], b_mxd_enc [H]             encoder
    W_dec [N, H], W_mxd_out [O, H]             C and the decoder D
    b_mxd_dec [H], b_dec [O]                   branch ``mxd``: constant mixing and output bias
    b_dec [H], b_mxd_dec [O]                   branch ``molt``: the same, swapped
    post_enc [N]                               branch ``molt``: shift of active gates, which must be zero

**circuit-tracer** 0.1 to 0.5: a set with one transcoder per layer, a folder with ``config.yaml`` and
``layer_N.safetensors``. Its hooks are TransformerLens's, without folded norms. With ``activation: topk`` and ``k`` they
are TopK; without thresholds they are ReLU.

    W_enc [N, I], b_enc [N]                    gate
    W_dec [N, O], b_dec [O], W_skip [O, I]     as above
    activation_function.threshold [N]          for JumpReLU

**Steering vectors** have the residual stream's width W. They are GGUF control vectors, one file per expert, or one
safetensors file with ``expert.N`` [W]. llama.cpp adds the tensor ``direction.L`` to the residual stream after block L,
for L from 1 on. The vectors are what block L itself adds because of an expert, so the place is the same.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.loading import load_outline
from mxd.trainer.layers.tensor_files import save_tensors
from mxd.trainer.layers.variants import Autoencoder, FixedThresholds
from mxd.trainer.storage.formats import LayerFormat, VectorFormat
from mxd.trainer.storage.formats.base import (
    ImportedLayer,
    Reads,
    SourceSettings,
    SourceTensors,
    input_norm,
    input_place,
    layer_of_module,
    output_place,
    split_hook,
    transcoder_tensors,
)
from mxd.trainer.storage.run import Run, check_empty_folder, portable
from mxd.trainer.utils.files import atomic_directory

CONFIG = "cfg.json"
"""Config of SAELens and of sparsify."""

# ---------------------------------------------------------------- SAELens

SAELENS_WEIGHTS = "sae_weights.safetensors"
SAELENS_KNOWN = ("architecture", "d_in", "d_out", "d_sae", "dtype", "device", "metadata")
"""Settings that do not change the function; any other that is on may."""
SAELENS_TRANSCODERS = ("transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder")
SAELENS_NAMES = {"gate.weight": "W_enc.T", "gate.bias": "b_enc", "direction_NO": "W_dec", "output_bias": "b_dec"}
SAELENS_OPTIONAL = {"threshold_N": "threshold", "skip.weight": "W_skip"}


def read_saelens(settings: SourceSettings, weights: Path) -> ImportedLayer:
    """Read the transcoder in a folder. Raises UserError if it is not a supported transcoder."""
    where = settings.where
    architecture = settings.text("architecture", "standard")
    if architecture not in SAELENS_TRANSCODERS:
        supported = ", ".join(SAELENS_TRANSCODERS)
        raise UserError(f"Unsupported architecture: {architecture} in {where}. Supported: {supported}.")
    settings.check_known(SAELENS_KNOWN)
    metadata = settings.part("metadata")
    for name in ("hook_head_index", "hook_head_index_out"):  # it reads or writes a part of the activations
        if metadata.values.get(name) is not None:
            raise UserError(f"Unsupported setting: {name} = {metadata.values[name]!r} in {where}.")
    hook, out_hook = metadata.text("hook_name"), metadata.text("hook_name_out")
    (block, _), (out_block, _) = split_hook(hook), split_hook(out_hook)
    if block != out_block:
        raise UserError(
            f"Unsupported transcoder: it reads {hook} and writes {out_hook} in {where}. Both must be of one block."
        )
    # With folded norms the MLP of TransformerLens reads the norm's output before its weight, whatever the hook's name.
    plain: Reads = "mlp-input" if input_place(hook) == "mlp-input" else "norm"
    folded = metadata.part("model_from_pretrained_kwargs").flag("fold_ln")
    writes_addition = output_place(out_hook) == "added"
    parts = {"threshold_N": architecture.startswith("jumprelu"), "skip.weight": "skip" in architecture}
    tensors = SourceTensors.read(weights)
    converted = tensors.under(SAELENS_NAMES | {it: SAELENS_OPTIONAL[it] for it, is_there in parts.items() if is_there})
    tensors.check_empty()
    return ImportedLayer.transcoder(
        converted,
        None,
        reads="folded-norm" if folded else plain,
        layer=block,
        weights=weights,
        version=metadata.text("sae_lens_version", "unknown"),
        text=metadata.values.get("dataset_path"),
        context=metadata.tokens("context_size") or None,
        writes_addition=writes_addition,
        input_norm=input_norm(hook),
        start_tokens=("bos_token",) if metadata.flag("prepend_bos") else (),
    )


ARCHITECTURE = "mxd"
"""Name under which ``saelens_layer`` registers its class."""
PREFIX = "layer."
WRITTEN_FOR = "6.54.12"
"""SAELens version whose fields the config has."""


def write_saelens(run: Run, folder: Path) -> None:
    layer, config = run.layer, portable(run.config, None)
    settings: dict[str, Any]
    if isinstance(layer, FixedThresholds | Autoencoder):
        tensors = transcoder_tensors(run, "saelens", SAELENS_NAMES | SAELENS_OPTIONAL)  # SAELens has these layers, too
        if isinstance(layer, Autoencoder):
            settings = {"architecture": "topk", "k": layer.config.k, "rescale_acts_by_decoder_norm": False}
            settings["apply_b_dec_to_input"] = True
        else:
            kind = "jumprelu_skip_transcoder" if "W_skip" in tensors else "jumprelu_transcoder"
            settings = {"architecture": kind, "d_out": layer.config.output_width}
    else:
        tensors = {PREFIX + name: value.detach().contiguous() for name, value in layer.state_dict().items()}
        own = layer.config.model_dump(mode="json")
        settings = {"architecture": ARCHITECTURE, "d_out": layer.config.output_width, "layer": own}
    save_tensors(tensors, folder / SAELENS_WEIGHTS)
    block = f"blocks.{run.config.layer}.mlp"
    metadata = {
        "sae_lens_version": WRITTEN_FOR,
        "model_name": config.language_model,
        "hook_name": f"{block}.hook_in" if layer.reads == "mlp-input" else f"{block}.hook_out",
        "hook_name_out": f"{block}.hook_out",
        "context_size": run.config.text.context_length,
        "dataset_path": config.text.dataset,
        "prepend_bos": run.config.text.start_token in (None, run.tokenizer.bos_token),
    }
    common = {
        "d_in": layer.config.input_width,
        "d_sae": layer.config.num_experts,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": False,
        "normalize_activations": "none",
        "reshape_activations": "none",
    }
    text = json.dumps({**common, **settings, "metadata": metadata}, indent=1) + "\n"
    (folder / CONFIG).write_text(text, "utf-8")


# ---------------------------------------------------------------- sparsify

SPARSIFY_WEIGHTS = "sae.safetensors"
UNSUPPORTED = ("embed_skip", "gram_lookup", "signed", "normalize_io", "post_encoder_scale", "molt_n", "n_targets")
"""Settings of other inputs, negative activations, scales, MOLT and several outputs."""
GATE = {"gate.weight": "encoder.weight", "gate.bias": "encoder.bias"}
DECODER = {"direction_NO": "W_dec", "output_bias": "b_dec"}
UNUSED = ("W_mxd_in", "W_mxd_out", "b_mxd_enc", "b_mxd_dec")
"""Tensors that clt-training's branch ``molt`` also writes for a transcoder."""


def read_sparsify(settings: SourceSettings, weights: Path, part: str) -> ImportedLayer:
    """Read the transcoder of a hookpoint. Raises UserError if it is not a supported transcoder."""
    where = settings.where
    if not settings.flag("transcode"):
        raise UserError(f"{where} is an autoencoder. Only transcoders can be imported.")
    if settings.text("activation", "topk") != "topk":
        raise UserError(f"Unsupported activation: {settings.text('activation')} in {where}. Supported: topk.")
    for name in UNSUPPORTED:
        if settings.values.get(name):
            raise UserError(f"Unsupported setting: {name} in {where}.")
    layer = layer_of_module(part)
    if layer is None and part:
        raise UserError(f"Unsupported hookpoint: {part}. It must be an MLP such as layers.3.mlp.")
    tensors = SourceTensors.read(weights)
    converted = tensors.under(GATE)
    mixes_hidden = settings.flag("mxd") or settings.tokens("mxd_h") > 0
    if mixes_hidden:
        converted |= _hidden_mixture(settings, tensors)
    else:
        converted |= tensors.under(DECODER | ({"skip.weight": "W_skip"} if "W_skip" in tensors.values else {}))
        tensors.ignore(*UNUSED)
    shift = tensors.pop_optional("post_enc")
    if shift is not None and bool(shift.any()):
        raise UserError(f"Unsupported tensor: post_enc in {tensors.where} is not zero.")
    tensors.check_empty()
    layer_facts: dict[str, Any] = {
        "reads": "mlp-input",
        "layer": layer,
        "weights": weights,
        "start_tokens": ("eos_token",),  # its chunk_and_tokenize puts it before each document
    }
    if mixes_hidden:
        return ImportedLayer("hidden-mxd", settings.whole("k", 32), converted, **layer_facts)
    return ImportedLayer.transcoder(converted, settings.whole("k", 32), **layer_facts)


def _hidden_mixture(settings: SourceSettings, tensors: SourceTensors) -> dict[str, Tensor]:
    activation = settings.text("mxd_encoder_activation", "none")
    if activation != "none":
        raise UserError(f"Unsupported mxd_encoder_activation: {activation} in {settings.where}. Supported: none.")
    if settings.flag("skip_connection"):
        raise UserError(f"Unsupported setting: skip_connection of an MxD in {settings.where}.")
    output_bias, mixing_bias = ("b_dec", "b_mxd_dec") if settings.flag("mxd") else ("b_mxd_dec", "b_dec")
    encoder = {"encoder.weight": "W_mxd_in", "encoder.bias": "b_mxd_enc", "mixing_bias_H": mixing_bias}
    return tensors.under(encoder | {"scaling_NO": "W_dec", "decoder.weight": "W_mxd_out", "output_bias": output_bias})


def write_sparsify(run: Run, folder: Path) -> None:
    """Write a TopK transcoder or autoencoder to the folder of its hookpoint, such as ``layers.3.mlp``. Raises UserError
    if sparsify has no such layer."""
    tensors = transcoder_tensors(
        run, "sparsify", GATE | DECODER | {"skip.weight": "W_skip", "threshold_N": "threshold"}
    )
    layer = run.layer.config
    if "threshold" in tensors:
        raise UserError(f"sparsify has no layers with thresholds, as '{run.name}' has. Use --format=saelens.")
    if layer.input_width != layer.output_width:
        raise UserError(
            f"sparsify needs equal widths, but '{run.name}' maps {layer.input_width} to {layer.output_width}."
        )
    target = folder / hookpoint(run)
    target.mkdir()
    save_tensors(tensors, target / SPARSIFY_WEIGHTS)
    settings = {
        "activation": "topk",
        "expansion_factor": max(1, layer.num_experts // layer.input_width),
        "normalize_decoder": False,
        "num_latents": layer.num_experts,
        "k": layer.k,
        "multi_topk": False,
        "skip_connection": "W_skip" in tensors,
        "transcode": run.layer.reads == "mlp-input",
        "d_in": layer.input_width,
    }
    (target / CONFIG).write_text(json.dumps(settings, indent=1) + "\n", "utf-8")


def hookpoint(run: Run) -> str:
    """Return the name of the run's MLP in the base model of its language model. Raises UserError if the MLP is not a
    single module."""
    module = load_outline(run.language_model_source)
    architecture = Architecture(module, run.language_model_source)
    first, last = architecture.mlp_names(run.config.layer)
    if first != last:
        raise UserError(f"The MLP of {run.config.language_model} is not a single module, which sparsify needs.")
    block = architecture.block(run.config.layer)
    return next(f"{name}.{first}" for name, other in module.base_model.named_modules() if other is block)


# ---------------------------------------------------------------- circuit-tracer

SET_CONFIG = "config.yaml"
HOOKS = ("feature_input_hook", "feature_output_hook")
SET_KNOWN = ("model_name", "model_kind", *HOOKS, "scan", "repo_id", "revision", "transcoders", "activation", "k")
"""Settings that are read here or do not change the function; any other that is on may."""
THRESHOLDS = ("activation_function.threshold", "threshold")
SET_NAMES = {"gate.weight": "W_enc", "gate.bias": "b_enc", "direction_NO": "W_dec", "output_bias": "b_dec"}


def read_circuit_tracer(settings: SourceSettings, weights: Path, layer: int) -> ImportedLayer:
    """Read the transcoder of one layer. Raises UserError if it is not supported."""
    kind = settings.text("model_kind", "transcoder_set")
    if kind != "transcoder_set":
        raise UserError(f"Unsupported model_kind: {kind} in {settings.where}. Supported: transcoder_set.")
    if settings.values.get("transcoders"):
        raise UserError(
            f"{settings.where} refers to files of other repos. Download them as layer_N.safetensors to its folder, and "
            "remove the list."
        )
    settings.check_known(SET_KNOWN)
    if settings.values.get("activation") not in (None, "relu", "jumprelu", "topk"):
        raise UserError(
            f"Unsupported activation: {settings.values['activation']} in {settings.where}. Supported: relu, jumprelu, "
            "topk."
        )
    hooks = [settings.text(name) for name in HOOKS]
    if any(block not in (None, layer) for block in (split_hook(hook)[0] for hook in hooks)):
        raise UserError(
            f"Unsupported hooks: {' and '.join(hooks)} in {settings.where}. Both must be of the layer's own block, "
            f"{layer}."
        )
    reads: Reads = "mlp-input" if input_place(hooks[0]) == "mlp-input" else "norm"
    writes_addition = output_place(hooks[1]) == "added"
    tensors = SourceTensors.read(weights)
    converted = tensors.under(SET_NAMES | ({"skip.weight": "W_skip"} if "W_skip" in tensors.values else {}))
    k = settings.whole("k") if settings.values.get("activation") == "topk" else None
    if k is None and (named := [value for name in THRESHOLDS if (value := tensors.pop_optional(name)) is not None]):
        converted["threshold_N"] = named[0].reshape(-1)
    tensors.check_empty()
    return ImportedLayer.transcoder(
        converted,
        k,
        reads=reads,
        layer=layer,
        weights=weights,
        writes_addition=writes_addition,
        start_tokens=("bos_token", "pad_token", "eos_token"),  # as its ReplacementModel.ensure_tokenized
    )


def write_circuit_tracer(runs: Sequence[Run], folder: Path) -> None:
    """Write transcoders of different layers as one set. Raises UserError if circuit-tracer has no such layers, or the
    runs do not form a set."""
    names = SET_NAMES | {"threshold_N": THRESHOLDS[0], "skip.weight": "W_skip"}
    tensors_of_layer = {run.config.layer: transcoder_tensors(run, "circuit-tracer", names) for run in runs}
    if len({run.config.language_model for run in runs}) > 1:
        raise UserError("A transcoder set has one run per layer of one language model.")
    if any(run.layer.reads == "mlp-output" for run in runs):
        raise UserError("circuit-tracer has no autoencoders. Use --format=saelens or sparsify.")
    for layer, tensors in tensors_of_layer.items():
        save_tensors(tensors, folder / f"layer_{layer}.safetensors")
    ks = {None if run.config.method.startswith("jumprelu") else run.layer.config.k for run in runs}
    if len(ks) > 1:
        raise UserError("A transcoder set has one activation, but these runs differ in K or thresholds.")
    k = ks.pop()
    settings = {
        "model_name": portable(runs[0].config, None).language_model,
        "model_kind": "transcoder_set",
        "feature_input_hook": "mlp.hook_in",
        "feature_output_hook": "mlp.hook_out",
        **({} if k is None else {"activation": "topk", "k": k}),
    }
    (folder / SET_CONFIG).write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")


def export_layers(runs: Sequence[Run], format: LayerFormat, folder: Path) -> None:
    """Write the layers of some runs. With saelens, several runs get a folder each. Raises UserError if the folder is
    not empty, or the format has no such layers; no files are left."""
    check_empty_folder(folder)
    if len({run.config.layer for run in runs}) < len(runs):
        raise UserError("These runs are of the same layer. Export them one by one.")
    with atomic_directory(folder) as partial:
        if format == "circuit-tracer":
            write_circuit_tracer(runs, partial)
            return
        for run in runs:
            if format == "sparsify":
                write_sparsify(run, partial)
            else:
                target = partial if len(runs) == 1 else partial / f"layer_{run.config.layer}"
                target.mkdir(exist_ok=True)
                write_saelens(run, target)


# ---------------------------------------------------------------- steering vectors

GGUF_ARCHITECTURE = "controlvector"
VECTORS_FILE = "vectors.safetensors"


def check_vectors(run: Run, format: VectorFormat, experts: Sequence[int], folder: Path) -> None:
    """Check what can be checked before the language model is loaded. Raises UserError if there are no experts, the
    folder is not empty, or a control vector cannot act after the run's block."""
    if not experts:
        raise UserError("Steering vectors are written for chosen experts. Choose them with --experts.")
    if format == "gguf" and run.config.layer == 0:
        raise UserError("GGUF control vectors cannot act on layer 0. Use --format=vectors, or a run of a later layer.")
    check_empty_folder(folder)


def write_vectors(run: Run, format: VectorFormat, vectors: Mapping[int, Tensor], folder: Path) -> None:
    """Write vectors [W] by expert to a new folder. Raises UserError if the folder is not empty."""
    check_empty_folder(folder)
    with atomic_directory(folder) as partial:
        if format == "vectors":
            save_tensors({f"expert.{expert}": vector for expert, vector in vectors.items()}, partial / VECTORS_FILE)
            return
        from gguf import GGUFWriter

        model_type = str(load_outline(run.language_model_source).config.model_type)
        for expert, vector_W in vectors.items():
            writer = GGUFWriter(partial / f"expert-{expert}.gguf", GGUF_ARCHITECTURE)
            writer.add_string(f"{GGUF_ARCHITECTURE}.model_hint", model_type)
            writer.add_uint32(f"{GGUF_ARCHITECTURE}.layer_count", 1)
            writer.add_string("general.name", f"{run.name}, expert {expert}")
            writer.add_tensor(f"direction.{run.config.layer}", vector_W.numpy())
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
