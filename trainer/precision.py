"""In which numbers a language model is read while layers are fitted to it.

In bfloat16 on a GPU and on a processor with units for it, in float32 elsewhere. What was taken is written down with the
run, and a run that is gone on with keeps it wherever that is, for other numbers would make it another run.

Indexes, evaluations and the server read in what ``loading.choose_dtype`` says, float32 on every processor: so what an
index has counted is what is shown live.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch

from trainer.config import Dtype, TrainConfig
from trainer.errors import UserError
from trainer.loading import choose_dtype, load_width
from trainer.run import RUN_FILE, Run, runs_folder

NARROWEST = 64
"""Width of the narrowest language models for which bfloat16 was measured to pay on a CPU (docs/results.md)."""
_UNITS = ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16")
"""What PyTorch calls a processor's units for bfloat16 products."""


def has_bfloat16_units() -> bool:
    """Whether this processor multiplies in bfloat16 by itself; without, such products are slower than float32's."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # older PyTorch does not tell
    return any(capabilities.get(unit) for unit in _UNITS)


def fitting_dtype(device: torch.device, width: int) -> torch.dtype:
    """What is taken on a device for a language model of a width, unless somebody says otherwise."""
    if device.type == "cpu" and width >= NARROWEST and has_bfloat16_units():
        return torch.bfloat16
    return choose_dtype(device)


def dtype_name(dtype: torch.dtype) -> Dtype:
    """As it stands in a run's settings."""
    return cast(Dtype, str(dtype).removeprefix("torch."))


def dtype_of(name: Dtype) -> torch.dtype:
    """What the settings name."""
    found: torch.dtype = getattr(torch, name)
    return found


def settled(configs: Sequence[TrainConfig], data: Path, device: torch.device) -> list[TrainConfig]:
    """The same, each with what its language model is read in: as asked for, or as the run was begun, or the fastest.

    Raises:
        UserError: the language model's config cannot be read, or a run's settings.
    """
    known = [config.language_model_dtype or _begun_in(config, data, device) for config in configs]
    other = next(filter(None, known), None)
    if other is None:
        other = dtype_name(fitting_dtype(device, load_width(configs[0].language_model)))
    return [
        config.model_copy(update={"language_model_dtype": name or other})
        for config, name in zip(configs, known, strict=True)
    ]


def slowness(dtype: Dtype, device: torch.device) -> str | None:
    """Why a language model is slow to read in these numbers on a device, in a sentence; None where it is not."""
    if dtype != "bfloat16" or device.type != "cpu" or has_bfloat16_units():
        return None
    return (
        "The language model is read in bfloat16, for which this processor has no units: that is slower than float32, "
        "which a new run takes here by itself."
    )


def written_down(config: TrainConfig, dtype: torch.dtype) -> TrainConfig:
    """The same, with what its language model was loaded in.

    Raises:
        UserError: other numbers were asked for.
    """
    wanted, found = config.language_model_dtype, dtype_name(dtype)
    if wanted not in (None, found):
        raise UserError(
            f"The run {config.name} is to read its language model in {wanted}, and that was loaded in {found}; load it "
            f"with dtype=torch.{wanted}, or choose another."
        )
    return config.model_copy(update={"language_model_dtype": found})


def _begun_in(config: TrainConfig, data: Path, device: torch.device) -> Dtype | None:
    """What a run that is there was begun in; None of a new one."""
    folder = runs_folder(data) / config.name
    if not (folder / RUN_FILE).is_file():
        return None
    # Where it was not written down yet, it was this.
    return Run.load(folder, data).config.language_model_dtype or dtype_name(choose_dtype(device))
