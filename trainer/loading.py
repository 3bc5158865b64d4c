"""Reading a Hugging Face causal language model from a folder or the hub, with a sentence for all that can be wrong.

Whole on one device; spread over several, over main memory and over disk; or in outline, without weights.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import torch
from safetensors import SafetensorError
from torch import nn

from trainer import hub
from trainer.config import SPREAD
from trainer.errors import NotFoundError, UserError
from trainer.repositories import looks_like_path

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")
DeviceMap = Mapping[str, str | int | torch.device] | Literal["auto"]
"""Which module goes where, as transformers and accelerate have it; ``auto`` fills all devices evenly."""


def choose_device(device: str) -> torch.device:
    """The device that a name means; ``auto`` takes a GPU where there is one, and so does ``spread``, to begin with.

    Raises:
        UserError: a GPU is asked for and there is none.
    """
    if device in ("auto", SPREAD):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("No GPU can be used on this machine; choose --device cpu.")
    return torch.device(device)


def choose_dtype(device: torch.device) -> torch.dtype:
    """What a language model's weights are on a device unless somebody says otherwise."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def load_module(source: str, dtype: torch.dtype) -> PreTrainedModel:
    """The language model itself, in main memory. Pickled weights and remote code are refused.

    Raises:
        UserError: it does not exist, cannot be downloaded, is damaged, or is no causal language model.
    """
    return _read(source, lambda name, cached_only: _pretrained(name, dtype, cached_only, None))


def load_spread(source: str, dtype: torch.dtype, device_map: DeviceMap = "auto") -> PreTrainedModel:
    """The same, each module where ``device_map`` says. What is for ``disk`` stays in the files and is read when needed.

    Raises:
        UserError: as ``load_module``.
    """
    return _read(source, lambda name, cached_only: _pretrained(name, dtype, cached_only, device_map))


def load_outline(source: str) -> PreTrainedModel:
    """The language model's modules with their shapes and no weights: its config is all that is read.

    Raises:
        UserError: there is no such config, or it is of no causal language model.
    """
    return _read(source, _outline)


def load_width(source: str) -> int:
    """Width of the language model's residual stream, from its config; 0 where that does not say.

    Raises:
        UserError: there is no such config.
    """
    return _read(source, _width)


@contextmanager
def weights_at_hand(module: nn.Module) -> Iterator[None]:
    """Have a module's own weights where they can be read, also those that stay on disk."""
    if not hasattr(module, "_hf_hook"):  # they are where they belong
        yield
        return
    from accelerate.utils import align_module_device

    with align_module_device(module):
        yield


def runs_on(module: nn.Module) -> torch.device | None:
    """Where a module of a spread language model works, wherever its weights are kept; None of any other module."""
    for child in module.modules():
        found = getattr(getattr(child, "_hf_hook", None), "execution_device", None)
        if found is not None:
            return torch.device(found)
    return None


def _pretrained(name: str, dtype: torch.dtype, cached_only: bool, device_map: DeviceMap | None) -> PreTrainedModel:
    # Here and below: it takes seconds to import, and a server shows its first page before it needs a language model.
    from transformers import AutoModelForCausalLM

    # What it warns of, weights that are not in a device's memory, is what was asked for.
    logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)
    module: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        name,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=cached_only,
        device_map=device_map,
    )
    return module


def _outline(name: str, cached_only: bool) -> PreTrainedModel:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=cached_only)
    with torch.device("meta"):
        module: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return module


def _width(name: str, cached_only: bool) -> int:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=cached_only)
    return int(getattr(config.get_text_config(), "hidden_size", 0))


def _read(source: str, reader: Callable[[str, bool], T]) -> T:
    """What ``reader`` makes of a folder or hub name, and of whether it must do with what has been downloaded before."""
    folder = Path(source).expanduser()
    if looks_like_path(source) and not folder.is_dir():
        raise NotFoundError(f"There is no folder {source}; give a language model's folder or its hub name.")
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    # What has been downloaded before will do where the hub is out of reach; the client alone tries for half a minute.
    cached_only = not folder.is_dir() and hub.out_of_reach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice for other callers of transformers; what is wrong raises
        try:
            return reader(str(folder) if folder.is_dir() else source, cached_only)
        except SafetensorError as error:
            raise UserError(f"The weights of {source} are damaged ({error}); download or copy them again.") from error
        except _unreadable() as error:
            if cached_only:
                raise UserError(
                    f"The language model {source} is no folder and has not been downloaded before, and the hub "
                    f"({hub.endpoint()}) does not answer; check the network, or give a folder."
                ) from error
            raise UserError(
                f"The language model {source} cannot be loaded ({_first_sentence(error)}); check its name, or give a "
                "folder that holds a causal language model."
            ) from error


def _unreadable() -> tuple[type[Exception], ...]:
    """What reading a language model raises where its files hold other values than its classes can take."""
    from huggingface_hub.errors import StrictDataclassError

    return (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
        StrictDataclassError,
    )


def _first_sentence(error: Exception) -> str:
    lines = [line.strip().rstrip(".:;") for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
