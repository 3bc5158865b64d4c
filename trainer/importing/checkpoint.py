"""Checkpoints of the paper's own code (github.com/james-oldfield/MxD, commit f2d8ef7): ``.pt`` files.

They are pickles. PyTorch's restricted reader makes tensors and plain values of them and calls nothing that they name;
the one class they hold, that of the settings, is read as an empty one of ours with the same values.

    W_enc [I, H], b_enc [H]        encoder; of a GLU the part behind the activation, W_glu is the other
    W_dec [H, O]                   decoder D, or of a transcoder [N, O] its directions
    gate [N, I], gate_bias [N]     gate
    W_cond [O, N]                  C
    b_dec_out [O]                  output bias; b_dec plays no part in a layer that stands for an MLP

They were fitted on TransformerLens with its folding: the input is the norm's before its weight and bias.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.config import Activation
from trainer.errors import UserError
from trainer.importing.found import Found, Settings, Tensors
from trainer.importing.hooks import input_place, output_place, split

SETTINGS_CLASS = "sae_training.config.LanguageModelSAERunnerConfig"
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "sigmoid": "sigmoid",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",  # not offered by the paper's command line, but what its Swish-GLU for Llama needs
}
MOST_GROWTH = 4
"""How many times its size in the file a checkpoint may have unpacked; those that PyTorch writes are not compressed."""


class _RunnerSettings:
    """Stands for the class of the settings, with their values and none of its code."""


def read_checkpoint(path: Path) -> Found:
    """The layer of a checkpoint.

    Raises:
        UserError: it is none, it holds more than tensors and settings, or a layer that cannot stand for an MLP.
    """
    settings, tensors = _unpickle(path)
    if not settings.flag("is_transcoder"):
        raise UserError(f"{path.name} was fitted as an autoencoder; only layers that stand for an MLP can be imported.")
    hook, out_hook = settings.text("hook_point"), settings.text("out_hook_point")
    if input_place(hook) != "normalized" or output_place(out_hook) != "added":
        raise UserError(
            f"{path.name} goes from {hook} to {out_hook}; only ln2.hook_normalized to hook_mlp_out is known."
        )
    read = _mixture if settings.flag("use_conditional") else _transcoder
    method, found, k, activation = read(settings, tensors)
    tensors.leave("b_dec")
    tensors.end()
    return Found(
        method=method,
        k=k,
        tensors=found,
        reads="folded-norm",
        layer=split(hook)[0],
        weights=path,
        activation=activation,
        encoder="glu" if settings.flag("use_glu") else "mlp",
        text=settings.values.get("dataset_path"),
        tokens=settings.tokens("total_training_tokens"),
        context=settings.tokens("context_size") or None,
        after_post_norm=True,
    )


def _mixture(settings: Settings, tensors: Tensors) -> tuple[Any, dict[str, Tensor], int, Activation]:
    if settings.flag("use_skip"):
        raise UserError(f"{tensors.where} has a skip connection beside experts, which no method here has.")
    name = settings.text("mlp_activation_fn")
    if name not in ACTIVATIONS:
        raise UserError(f"{tensors.where} has the activation {name}; known are {', '.join(ACTIVATIONS)}.")
    first = {"weight": tensors.take("W_enc").T, "bias": tensors.take("b_enc")}
    encoders = {"encoder": first}
    if settings.flag("use_glu"):
        linear = {"weight": tensors.take("W_glu.weight"), "bias": tensors.take("W_glu.bias")}
        encoders = {"encoder_gate": first, "encoder": linear}
    found = {f"{module}.{kind}": value for module, pair in encoders.items() for kind, value in pair.items()}
    found |= {
        "gate.weight": tensors.take("gate"),
        "gate.bias": tensors.take("gate_bias"),
        "scaling_NO": tensors.take("W_cond").T,
        "decoder.weight": tensors.take("W_dec").T,
        "output_bias": tensors.take("b_dec_out"),
    }
    k = settings.tokens("topk")
    return (
        ("mxd", found, k, ACTIVATIONS[name]) if k else ("relu-mxd", found, len(found["gate.bias"]), ACTIVATIONS[name])
    )


def _transcoder(settings: Settings, tensors: Tensors) -> tuple[Any, dict[str, Tensor], int, None]:
    if settings.flag("use_glu") or settings.text("mlp_activation_fn") != "relu":
        raise UserError(f"{tensors.where} is a transcoder without a ReLU, which no method here is.")
    found = {
        "gate.weight": tensors.take("W_enc").T,
        "gate.bias": tensors.take("b_enc"),
        "direction_NO": tensors.take("W_dec"),
        "output_bias": tensors.take("b_dec_out"),
    }
    skip = "skip-" if settings.flag("use_skip") else ""
    if skip:
        found["skip.weight"] = tensors.take("W_skip.weight")
    k = settings.tokens("topk")
    if k:
        return f"{skip}transcoder", found, k, None
    found["threshold_N"] = torch.zeros_like(found["gate.bias"])
    return f"jumprelu-{skip}transcoder", found, len(found["gate.bias"]), None


def _unpickle(path: Path) -> tuple[Settings, Tensors]:
    """Settings and tensors of a checkpoint; nothing in it is executed."""
    _refuse_bomb(path)
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([(_RunnerSettings, SETTINGS_CLASS)]):
            warnings.simplefilter("ignore")  # of pickles that others than PyTorch wrote, which are refused
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} holds more than tensors and settings, and nothing in it has been executed; only checkpoints of "
            "the paper's code are read, others have to be converted to safetensors by whoever trusts them."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
        raise UserError(f"{path} cannot be read as a checkpoint of PyTorch; copy it again.") from error
    return _parts(content, path.name)


def _refuse_bomb(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MOST_GROWTH * path.stat().st_size:
        raise UserError(f"{path} unpacks to {unpacked:,} bytes, which no checkpoint of PyTorch does.")


def _parts(content: object, where: str) -> tuple[Settings, Tensors]:
    whole = content if isinstance(content, Mapping) else {}
    settings, tensors = whole.get("cfg"), whole.get("state_dict")
    if not isinstance(settings, _RunnerSettings) or not isinstance(tensors, Mapping):
        raise UserError(f"{where} is no checkpoint of the paper's code (cfg and state_dict are expected in it).")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()):
        raise UserError(f"The state_dict of {where} holds more than tensors; copy it again.")
    strange = sorted(name for name, value in tensors.items() if not _is_plain(value))
    if strange:
        raise UserError(f"The tensor {strange[0]} of {where} is larger than what the file holds of it; copy it again.")
    return Settings(vars(settings), where), Tensors(dict(tensors), where)


def _is_plain(value: Tensor) -> bool:
    """Whether a tensor's numbers are all in the file: one of a few bytes may claim any size, and would be made so."""
    if value.layout is not torch.strided or value.device.type != "cpu":
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()
