"""Language models of the caller: loaded by name, or borrowed and left as they were."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mxd.api.errors import speaks_python
from mxd.trainer.config import DtypeChoice
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.mlp_hooks import Mlp, replace_mlp
from mxd.trainer.language_model.model import LanguageModel

MODEL_INPUTS = ("input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids")
"""Entries of a batch that are passed to the model."""


@speaks_python
def load_model(
    source: str, *, device: str = "auto", dtype: torch.dtype | DtypeChoice = "auto"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a plain transformers model and its tokenizer, also from a GGUF file. Pickled weights are rejected.

    >>> model, tokenizer = mxd.load_model(model_folder)
    >>> type(model).__name__
    'LlamaForCausalLM'

    Args:
        source: Hub name, folder, path of a GGUF file, or ``package:NAME`` for the GGUF file of an installed package.
        device: ``auto``, ``cpu``, ``cuda``, ``xpu``, ``mps``, one of several such as ``cuda:1``, or ``auto-map``.
        dtype: ``auto`` is bfloat16 on accelerators that have it natively, and float32 elsewhere.

    Raises:
        UserError: the model does not exist, is damaged, or is not a causal language model.
    """
    language_model = LanguageModel.load(source, device, dtype)
    model = language_model.module.requires_grad_(True)
    model.name_or_path = source  # from which commands and the dashboard load it again
    return model, language_model.tokenizer


class Reference:
    """The model that a layer was trained on in this process, or that was loaded for it. Copies do not include it."""

    def __init__(self) -> None:
        self.model: tuple[Any, Any] | None = None
        """Model and tokenizer of the caller."""
        self.loaded: LanguageModel | None = None

    def __reduce__(self) -> tuple[type[Reference], tuple[()]]:
        return Reference, ()


@contextmanager
def unchanged(*modules: nn.Module) -> Iterator[None]:
    """Restore the training mode of all submodules and ``requires_grad`` of all parameters on exit."""
    training = [(child, child.training) for module in modules for child in module.modules()]
    gradients = [(it, it.requires_grad) for module in modules for it in module.parameters()]
    try:
        yield
    finally:
        for child, mode in training:
            child.training = mode
        for parameter, requires_grad in gradients:
            parameter.requires_grad_(requires_grad)


@contextmanager
def borrowed(model: Any, tokenizer: Any, source: str) -> Iterator[LanguageModel]:
    """Use the caller's model in evaluation mode and without gradients; restore both settings exactly on exit."""
    with unchanged(model):
        yield LanguageModel(model, tokenizer, source)


def model_inputs(model: Any, batch: Mapping[str, Tensor] | Tensor) -> dict[str, Tensor]:
    """Arguments of the model's forward pass, on its device. Left-padded rows get the positions of unpadded ones. Raises
    UserError if the batch holds neither token ids nor embeddings as tensors."""
    given = dict(batch) if isinstance(batch, Mapping) else {"input_ids": batch}
    inputs = {name: given[name].to(model.device) for name in MODEL_INPUTS if isinstance(given.get(name), Tensor)}
    if not {"input_ids", "inputs_embeds"} & inputs.keys():
        raise UserError(
            "The batch has no tensor of token ids. Pass texts, the result of layer.tokenize(texts) or of "
            'tokenizer(texts, return_tensors="pt", padding=True), or a tensor of ids [B, T].'
        )
    mask_BT = inputs.get("attention_mask")
    is_padded_left = mask_BT is not None and not bool(mask_BT[:, 0].all())
    # In forward, transformers counts padding on the left as positions; in generate it does not.
    if mask_BT is not None and is_padded_left and "position_ids" in inspect.signature(model.forward).parameters:
        inputs.setdefault("position_ids", (mask_BT.long().cumsum(dim=1) - 1).clamp_min(0))
    return inputs


class Attachment(AbstractContextManager["Attachment"]):
    """Handle of a layer that computes inside a model. ``detach`` takes it out; so does leaving a ``with`` block."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def detach(self) -> None:
        """Restore the model exactly. A second call does nothing."""
        self._stack.close()

    def __exit__(self, *_error: object) -> None:
        self.detach()


class GuardedSave:
    """``save_pretrained`` of a model, or of one that holds the same blocks, while layers are attached to it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.attached = 0

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        raise UserError(
            "A layer is attached to the model, and transformers would load the original MLP again. Save the layer with "
            "layer.save_pretrained(folder), detach it, and save the model then. To use both: "
            "mxd.load(folder).attach(model)."
        )

    def release(self) -> None:
        """Restore the model's own method after the last layer is detached."""
        self.attached -= 1
        if not self.attached:
            del vars(self.model)["save_pretrained"]


class _Captured(Exception):
    """Ends the forward pass after the layer's MLP."""

    def __init__(self, activations: Tensor) -> None:
        self.activations = activations


def mlp_activations(
    model: Any, architecture: Architecture, index: int, reads: str, inputs: Mapping[str, Tensor]
) -> Tensor:
    """Input [B, T, I] of the MLP of a block, or its output for an autoencoder. Later blocks are not computed."""

    def capture(x_BTI: Tensor, mlp: Mlp) -> Tensor:
        raise _Captured(mlp() if reads == "mlp-output" else x_BTI)

    with ExitStack() as stack:
        replace_mlp(architecture.block(index), architecture.mlp_names(index), capture, stack)
        try:
            model(**inputs, use_cache=False)
        except _Captured as captured:
            return captured.activations
    raise AssertionError("The model did not compute the layer's MLP.")
