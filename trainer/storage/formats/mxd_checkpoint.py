"""Checkpoints of the paper's own code (github.com/james-oldfield/MxD, commit f2d8ef7): ``.pt`` files.

They are pickles, read with PyTorch's ``weights_only`` unpickler: it creates tensors and plain values and calls nothing
else. Their only class, the config, is replaced by an empty class with the same values.

    W_enc [I, H], b_enc [H]        encoder; in a GLU the activated branch, with W_glu as the linear one
    W_dec [H, O]                   decoder D, or [N, O] directions for a transcoder
    gate [N, I], gate_bias [N]     gate
    W_cond [O, N]                  C
    b_dec_out [O]                  output bias; b_dec is unused in layers that replace an MLP

They were trained with TransformerLens's folded norms: the input is the norm's output before weight and bias.
"""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mxd.trainer.config.layer import Activation
from mxd.trainer.errors import UserError
from mxd.trainer.storage.formats.base import (
    ImportedLayer,
    SourceSettings,
    SourceTensors,
    input_place,
    output_place,
    split_hook,
)

SETTINGS_CLASS = "sae_training.config.LanguageModelSAERunnerConfig"
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "sigmoid": "sigmoid",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",  # not in the paper's command line, but needed for its Swish-GLU on Llama
}
MIXTURE = {
    "gate.weight": "gate",
    "gate.bias": "gate_bias",
    "scaling_NO": "W_cond.T",
    "decoder.weight": "W_dec.T",
    "output_bias": "b_dec_out",
}
TRANSCODER = {"gate.weight": "W_enc.T", "gate.bias": "b_enc", "direction_NO": "W_dec", "output_bias": "b_dec_out"}
MAX_UNPACK_RATIO = 4
"""Maximum ratio of unpacked to packed size. PyTorch's own checkpoints are not compressed."""


class _RunnerSettings:
    """Replaces the config's class: its values without its code."""


def read_checkpoint(path: Path) -> ImportedLayer:
    """Read the layer of a checkpoint. Raises UserError if it is not a checkpoint, has other content than tensors and
    config, or is not supported."""
    settings, tensors = _unpickle(path)
    if not settings.flag("is_transcoder"):
        raise UserError(f"{path.name} is an autoencoder. Only layers that replace an MLP can be imported.")
    hook, out_hook = settings.text("hook_point"), settings.text("out_hook_point")
    if input_place(hook) != "normalized" or output_place(out_hook) != "added":
        raise UserError(
            f"Unsupported hooks in {path.name}: {hook} to {out_hook}. Supported: ln2.hook_normalized to hook_mlp_out."
        )
    facts: dict[str, Any] = {
        "reads": "folded-norm",
        "layer": split_hook(hook)[0],
        "weights": path,
        "encoder": "glu" if settings.flag("use_glu") else "mlp",
        "text": settings.values.get("dataset_path"),
        "tokens": settings.tokens("total_training_tokens"),
        "context": settings.tokens("context_size") or None,
        "writes_addition": True,
        "start_tokens": ("bos_token",),  # its activations store puts it before each document
    }
    layer = (_mixture if settings.flag("use_conditional") else _transcoder)(settings, tensors, facts)
    tensors.ignore("b_dec")
    tensors.check_empty()
    return layer


def _mixture(settings: SourceSettings, tensors: SourceTensors, facts: dict[str, Any]) -> ImportedLayer:
    if settings.flag("use_skip"):
        raise UserError(f"Unsupported layer in {tensors.where}: experts with a skip connection.")
    name = settings.text("mlp_activation_fn")
    if name not in ACTIVATIONS:
        raise UserError(f"Unsupported activation: {name} in {tensors.where}. Supported: {', '.join(ACTIVATIONS)}.")
    is_glu = settings.flag("use_glu")
    activated = "encoder_gate" if is_glu else "encoder"
    converted = tensors.under({f"{activated}.weight": "W_enc.T", f"{activated}.bias": "b_enc"} | MIXTURE)
    if is_glu:
        converted |= tensors.under({"encoder.weight": "W_glu.weight", "encoder.bias": "W_glu.bias"})
    k = settings.tokens("topk")
    method, num_experts = "mxd" if k else "relu-mxd", len(converted["gate.bias"])
    return ImportedLayer(method, k or num_experts, converted, activation=ACTIVATIONS[name], **facts)


def _transcoder(settings: SourceSettings, tensors: SourceTensors, facts: dict[str, Any]) -> ImportedLayer:
    if settings.flag("use_glu") or settings.text("mlp_activation_fn") != "relu":
        raise UserError(f"Unsupported layer in {tensors.where}: a transcoder without a ReLU.")
    skip = {"skip.weight": "W_skip.weight"} if settings.flag("use_skip") else {}
    return ImportedLayer.transcoder(tensors.under(TRANSCODER | skip), settings.tokens("topk") or None, **facts)


def _unpickle(path: Path) -> tuple[SourceSettings, SourceTensors]:
    """Read config and tensors of a checkpoint without executing anything in it."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_UNPACK_RATIO * path.stat().st_size:
            raise UserError(f"Invalid PyTorch checkpoint: {path} unpacks to {unpacked:,} bytes.")
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([(_RunnerSettings, SETTINGS_CLASS)]):
            warnings.simplefilter("ignore")  # pickles not written by PyTorch, which are rejected
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} has other content than tensors and config. Nothing in it was executed. Only checkpoints of the "
            "paper's code are supported; convert others to safetensors if you trust them."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
        raise UserError(f"Invalid PyTorch checkpoint: {path}. Copy it again.") from error
    return _parts(content, path.name)


def _parts(content: object, where: str) -> tuple[SourceSettings, SourceTensors]:
    whole = content if isinstance(content, Mapping) else {}
    settings, tensors = whole.get("cfg"), whole.get("state_dict")
    if not isinstance(settings, _RunnerSettings) or not isinstance(tensors, Mapping):
        raise UserError(f"{where} is not a checkpoint of the paper's code: it needs cfg and state_dict.")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()):
        raise UserError(f"The state_dict of {where} has values that are not tensors.")
    for name, value in sorted(tensors.items()):
        # A crafted file could claim any size.
        is_plain = value.layout is torch.strided and value.device.type == "cpu"
        if not is_plain or value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise UserError(f"Tensor {name} of {where} is larger than its data in the file. Copy the file again.")
    return SourceSettings(vars(settings), where), SourceTensors(dict(tensors), where)
