"""Reading a Hugging Face causal language model from a folder or the hub, with a sentence for all that can be wrong."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from trainer import hub
from trainer.errors import NotFoundError, UserError


def choose_device(device: str) -> torch.device:
    """The device that a name means; ``auto`` takes a GPU where there is one.

    Raises:
        UserError: a GPU is asked for and there is none.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("No GPU can be used on this machine; choose --device cpu.")
    return torch.device(device)


def looks_like_path(source: str) -> bool:
    """Whether a source can only be meant as a folder, not as a hub name."""
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or Path(source).exists()


def load_module(source: str, dtype: torch.dtype) -> PreTrainedModel:
    """The language model itself. Pickled weights and remote code are refused.

    Raises:
        UserError: it does not exist, cannot be downloaded, is damaged, or is no causal language model.
    """
    folder = Path(source).expanduser()
    if looks_like_path(source) and not folder.is_dir():
        raise NotFoundError(f"There is no folder {source}; give a language model's folder or its hub name.")
    transformers_logging.disable_progress_bar()
    # What has been downloaded before will do where the hub is out of reach; the client alone tries for half a minute.
    cached_only = not folder.is_dir() and hub.out_of_reach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice for other callers of transformers; what is wrong raises
        try:
            module: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                str(folder) if folder.is_dir() else source,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=cached_only,
            )
        except SafetensorError as error:
            raise UserError(f"The weights of {source} are damaged ({error}); download or copy them again.") from error
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            if cached_only:
                raise UserError(
                    f"The language model {source} is no folder and has not been downloaded before, and the hub "
                    f"({hub.endpoint()}) does not answer; check the network, or give a folder."
                ) from error
            raise UserError(
                f"The language model {source} cannot be loaded ({_first_sentence(error)}); check its name, or give a "
                "folder that holds a causal language model."
            ) from error
    return module


def _first_sentence(error: Exception) -> str:
    lines = [line.strip().rstrip(".:;") for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
