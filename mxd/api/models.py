"""The language model of a layer: the caller's own, for the time of a call, or one that is loaded by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from mxd.trainer.language_model.model import LanguageModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from mxd.api.layer import Layer


def load_model(source: str, *, device: str = "auto") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a plain transformers model and its tokenizer, also from a GGUF file. Pickled weights are rejected.

    >>> model, tokenizer = mxd.load_model(model_folder)
    >>> type(model).__name__
    'LlamaForCausalLM'

    Args:
        source: Hub name, folder, path of a GGUF file, or ``package:NAME`` for the GGUF file of an installed package.
        device: ``auto``, ``cpu``, ``cuda`` or ``auto-map``.

    Raises:
        UserError: the model does not exist, is damaged, or is not a causal language model.
    """
    language_model = LanguageModel.load(source, device)
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


@contextmanager
def language_model_of(
    layer: Layer, model: PreTrainedModel | None = None, tokenizer: PreTrainedTokenizerBase | None = None
) -> Iterator[LanguageModel]:
    """Yield the language model of a layer: ``model``, else the one it was trained on in this process, else by name.

    Raises:
        UserError: the model cannot be loaded.
    """
    reference, source = layer.reference, layer.run.language_model_source
    chosen: tuple[Any, Any] | None = (model, tokenizer or layer.run.tokenizer) if model is not None else reference.model
    if chosen is not None:
        with borrowed(*chosen, source) as language_model:
            yield language_model
        return
    if reference.loaded is None:
        reference.loaded = LanguageModel.load(source)
    yield reference.loaded
