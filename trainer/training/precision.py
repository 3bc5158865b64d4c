"""Precision of training: the dtype of the model, and that of the layer's matrix products.

The default dtype is bfloat16 on GPUs and on CPUs with native bf16 support, and float32 elsewhere. It is saved in the
run config, and resumed runs keep it on any machine. Indexing, evaluation and the server use ``loading.choose_dtype``,
which is float32 on every CPU. So the live view agrees with the index.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import cast

import torch

from mxd.trainer.config.training import Dtype, MatmulPrecision, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.loading import choose_dtype, load_width
from mxd.trainer.storage.run import RUN_FILE, Run, runs_folder

MIN_BFLOAT16_PRODUCT_WIDTH = 512
"""Input width from which ``auto`` uses bfloat16 products. In narrower layers other work takes most of a step."""


@contextmanager
def matmul_precision(precision: MatmulPrecision) -> Iterator[None]:
    """Set ``torch.set_float32_matmul_precision`` inside the context, and restore it afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "auto" else precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def resolved_precision(precision: MatmulPrecision, device: torch.device, width: int) -> MatmulPrecision:
    """``auto`` as it is on a device, for a layer of this input width. The run stores it, so that every resumption of
    the run has the precision of its first step, on any machine."""
    if precision != "auto":
        return precision
    return "medium" if width >= MIN_BFLOAT16_PRODUCT_WIDTH and has_bfloat16_units(device) else "highest"


def product_dtype(precision: MatmulPrecision, device: torch.device, width: int) -> torch.dtype:
    """Dtype to which matrix products round their inputs, bfloat16 or float32, in a layer of this input width. Sums are
    in float32."""
    return torch.bfloat16 if resolved_precision(precision, device, width) == "medium" else torch.float32


def products_in(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Context in which matrix products on a device round their inputs to a dtype."""
    # Without the cache of rounded weights: each is used once per step.
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype, cache_enabled=False)


MIN_BFLOAT16_WIDTH = 64
"""Hidden width of the smallest models for which bfloat16 was measured to be faster on a CPU."""
_BFLOAT16_CAPABILITIES = ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16")
"""PyTorch's names of CPU capabilities for bfloat16 products."""


def has_bfloat16_units(device: torch.device) -> bool:
    """Return whether a device has bfloat16 products that are faster than those of float32."""
    if device.type != "cpu":
        return device.type != "mps" and choose_dtype(device) == torch.bfloat16
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # missing in older PyTorch
    return any(capabilities.get(name) for name in _BFLOAT16_CAPABILITIES)


def fastest_dtype(device: torch.device, width: int) -> torch.dtype:
    """Default dtype of a model of this hidden width on a device."""
    if device.type == "cpu" and width >= MIN_BFLOAT16_WIDTH and has_bfloat16_units(device):
        return torch.bfloat16
    return choose_dtype(device)


def dtype_name(dtype: torch.dtype) -> Dtype:
    return cast(Dtype, str(dtype).removeprefix("torch."))


def dtype_of(name: Dtype) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def resolve_dtypes(configs: Sequence[TrainConfig], data: Path, device: torch.device) -> list[TrainConfig]:
    """Fill in ``language_model_dtype``: the requested one, else the resumed run's, else the fastest on ``device``.
    Raises UserError if the config of the model or of a run cannot be read."""
    folders = [runs_folder(data) / config.name for config in configs]
    stored = [Run.load(folder, data).config if (folder / RUN_FILE).is_file() else None for folder in folders]
    requested = [
        config.language_model_dtype or (resumed.language_model_dtype if resumed else None)
        for config, resumed in zip(configs, stored, strict=True)
    ]
    default = next(filter(None, requested), None)
    if default is None:
        default = dtype_name(fastest_dtype(device, load_width(configs[0].language_model)))
    return [
        config.model_copy(update={"language_model_dtype": name or default})
        for config, name in zip(configs, requested, strict=True)
    ]


def in_bfloat16(config: TrainConfig) -> TrainConfig:
    """Settings on a device with bfloat16 units, where they were not chosen."""
    chosen = config.optimizer.matmul_precision
    config = config.with_optimizer(matmul_precision="medium" if chosen == "auto" else chosen)
    return config.model_copy(update={"language_model_dtype": config.language_model_dtype or "bfloat16"})


def slow_dtype_warning(dtype: Dtype, device: torch.device) -> str | None:
    if dtype != "bfloat16" or device.type != "cpu" or has_bfloat16_units(device):
        return None
    return (
        "The model runs in bfloat16, for which this CPU has no native support. float32, the default for new runs on "
        "this machine, is faster."
    )


def with_dtype(config: TrainConfig, dtype: torch.dtype) -> TrainConfig:
    """Set ``language_model_dtype`` to the dtype of the loaded model. Raises UserError if the config asks for another
    dtype."""
    requested, loaded = config.language_model_dtype, dtype_name(dtype)
    if requested not in (None, loaded):
        raise UserError(
            f"Run '{config.name}' needs its model in {requested}, but the model was loaded in {loaded}. Load it with "
            f"dtype=torch.{requested}, or change the run's dtype."
        )
    return config.model_copy(update={"language_model_dtype": loaded})
