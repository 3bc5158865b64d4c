"""Loading of causal language models from a folder, a GGUF file or the Hub, with an error message for every failure.

Loads the model on one device, sharded over the processes of torchrun, dispatched over several devices, main memory and
disk, or as an outline without weights.

``float32_weights`` widens half-precision weights for the time of a computation whose differences bfloat16 would round
away.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mxd.trainer.errors import TESTED_VERSIONS, UserError
from mxd.trainer.language_model.sources import local_folder
from mxd.trainer.language_model.untrusted.config_check import check_config_values, check_sizes, stored_weights
from mxd.trainer.utils.devices import accelerator, device_memory, named_device
from mxd.trainer.utils.distributed import AUTO_MAP
from mxd.trainer.utils.files import endpoint, first_line, is_unreachable

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from transformers import PreTrainedConfig, PreTrainedModel

HALVES = (torch.bfloat16, torch.float16)
ROOM = 1.2
"""Free memory that the larger weights need, relative to their size."""


@contextmanager
def float32_weights(module: nn.Module) -> Iterator[bool]:
    """Put float32 copies in the place of half-precision weights inside the context. Yields False, and changes nothing,
    if an accelerator has no room, or if some weights are kept outside its memory. Other threads must not use the module
    meanwhile."""
    owners = [
        (child, name, weight)
        for child in module.modules()
        for name, weight in child._parameters.items()
        if weight is not None and weight.dtype in HALVES
    ]
    halves = {id(weight): weight for _, _, weight in owners}  # tied weights once
    needed: dict[torch.device, int] = {}
    for weight in halves.values():
        needed[weight.device] = needed.get(weight.device, 0) + 2 * weight.nbytes
    memories = [(device_memory(device), size) for device, size in needed.items() if device.type != "meta"]
    has_room = all(memory is None or memory.free > ROOM * size for memory, size in memories)
    if len(memories) < len(needed) or not has_room:
        yield False
        return
    wide = {key: nn.Parameter(weight.detach().float(), requires_grad=False) for key, weight in halves.items()}
    with ExitStack() as stack:
        for child, name, weight in owners:
            stack.callback(child._parameters.__setitem__, name, weight)
            child._parameters[name] = wide[id(weight)]
        yield True


T = TypeVar("T")
Sharding = Literal["fsdp", "tp"]
"""How processes share the weights of a language model. fsdp: each block is gathered when it runs, and every process has
its own tokens. tp: each process computes a part of every matrix product, and all have the same tokens."""
DeviceMap = Mapping[str, str | int | torch.device] | Literal["auto"]
"""Module name -> device, as in transformers and accelerate; ``auto`` fills all devices evenly."""
INDEX = "model.safetensors.index.json"
WEIGHTS_NAMED = 3


def choose_device(device: str) -> torch.device:
    """Return the named device; ``auto`` and ``auto-map`` choose the accelerator, or the CPU if there is none. Raises
    UserError if there is no such device."""
    return accelerator() or torch.device("cpu") if device in ("auto", AUTO_MAP) else named_device(device)


def choose_dtype(device: torch.device) -> torch.dtype:
    """Default dtype of a language model's weights: bfloat16 on accelerators that have it natively, else float32. NVIDIA
    GPUs before Ampere (T4, V100) only emulate bfloat16, which is far slower than float32."""
    if device.type == "cpu":
        return torch.float32
    if device.type == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "mps":
        has_bfloat16 = torch.backends.mps.is_macos_or_newer(14, 0)
    else:
        has_bfloat16 = getattr(getattr(torch, device.type), "is_bf16_supported", bool)()
    return torch.bfloat16 if has_bfloat16 else torch.float32


def fits_in_float32(source: str, device: str) -> bool:
    """True if a language model in float32 takes at most half of a device's free memory, or shares main memory anyway.
    Raises UserError: as ``choose_device`` and ``load_outline``."""
    memory = device_memory(choose_device(device))
    if memory is None:
        return True
    return device != AUTO_MAP and 2 * 4 * sum(it.numel() for it in load_outline(source).parameters()) <= memory.free


def load_module(
    source: str,
    dtype: torch.dtype,
    last_layer: int | None = None,
    device_map: DeviceMap | None = None,
    sharding: Sharding | None = None,
) -> PreTrainedModel:
    """Load a language model, by default into main memory. Pickled weights and remote code are rejected.

    Args:
        last_layer: blocks behind this one are left out, in architectures whose other blocks do not depend on them.
        device_map: device of each module. Weights of modules on ``disk`` stay in their files until they are needed.
        sharding: each process of a machine holds a part, and reads only that part. Machines with several processes have
            a copy each; processes that are alone on their machine share one.

    Raises:
        UserError: the model does not exist, cannot be downloaded, is damaged, is not a causal language model, or cannot
            be sharded so.
    """

    def pretrained(name: str, local: bool) -> PreTrainedModel:
        from transformers import AutoModelForCausalLM

        # Weights that do not fit a device are expected.
        logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)
        logging.getLogger("transformers.modeling_utils").addFilter(_is_no_load_report)
        logging.getLogger("transformers.distributed.mixin").setLevel(logging.ERROR)  # rules for other architectures
        config = _config(name, local)
        _check_can_load(config, Path(name))
        if (stored := stored_weights(Path(name))) is not None:  # the config may describe more than the files hold
            layers = int(getattr(config.get_text_config(), "num_hidden_layers", 0))
            check_sizes(layers, lambda: _build_outline(config), stored)
        config = _up_to(config, last_layer)
        placement = {"device_map": device_map} if sharding is None else _distributed(config, sharding)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=local,
            **placement,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        module: PreTrainedModel = loaded[0]
        _check_weights(module, loaded[1])
        return module

    return _read(source, pretrained)


def sharing_processes() -> int:
    """Number of processes that share the weights of a sharded language model."""
    each, all_processes = (int(os.environ.get(name, "1")) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    return each if each > 1 else all_processes


def load_outline(source: str) -> PreTrainedModel:
    """Build a language model's modules on the meta device, without weights, from its config alone. Raises UserError if
    there is no such config, or it does not describe a causal language model."""

    def outline(name: str, local: bool) -> PreTrainedModel:
        config = _config(name, local)
        _check_can_load(config, Path(name))
        return _build_outline(config)

    return _read(source, outline)


def outline_of(shape: Mapping[str, Any]) -> PreTrainedModel:
    """As ``load_outline``, from the fields of a config."""
    from transformers import AutoConfig

    return _build_outline(AutoConfig.for_model(**shape))


def load_width(source: str) -> int:
    """Width of a language model's residual stream, from its config; 0 if the config has no ``hidden_size``. Raises
    UserError if there is no such config."""
    return _read(source, lambda name, local: int(getattr(_config(name, local).get_text_config(), "hidden_size", 0)))


@contextmanager
def weights_at_hand(module: nn.Module) -> Iterator[None]:
    """Make a module's own weights readable inside the context, including weights that are offloaded to disk."""
    if not hasattr(module, "_hf_hook"):
        yield
        return
    from accelerate.utils import align_module_device

    with align_module_device(module):
        yield


@contextmanager
def head_in_float32(module: PreTrainedModel, blocks: nn.ModuleList) -> Iterator[dict[str, Tensor]]:
    """Float32 copies of a language model's weights outside its blocks, by name, for ``torch.func.functional_call``.
    Without the input embeddings, unless they are also the unembedding. Inside the context, offloaded weights of these
    modules are not read again, which would replace the copies."""
    inside = {id(child) for block in blocks for child in block.modules()}
    embeddings, unembedding = module.get_input_embeddings(), module.get_output_embeddings()
    if unembedding is None or unembedding.weight is not embeddings.weight:
        inside.add(id(embeddings))
    head: dict[str, Tensor] = {}
    seen: set[int] = set()
    with ExitStack() as stack:
        for path, child in module.named_modules():
            hook: Any = getattr(child, "_hf_hook", None)
            is_offloaded = bool(getattr(hook, "offload", False))
            weights = child.parameters(recurse=False)
            is_short = any(each.is_floating_point() and each.dtype != torch.float32 for each in weights)
            if id(child) in inside or not (is_offloaded or is_short):
                continue
            with weights_at_hand(child):
                own = list(child.named_parameters(path, recurse=False))
                head |= {name: parameter.float() for name, parameter in own if id(parameter) not in seen}
            seen |= {id(parameter) for _, parameter in own}
            if is_offloaded:
                hook.offload = False
                stack.callback(setattr, hook, "offload", True)
        yield head


def execution_device(module: nn.Module) -> torch.device | None:
    """Device on which a module of a dispatched language model computes; None for a module that is not dispatched."""
    for child in module.modules():
        device = getattr(getattr(child, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    return None


def _config(name: str, local: bool) -> PreTrainedConfig:
    # Imported here and below: transformers takes seconds to import, and the server starts without it.
    from transformers import AutoConfig, PreTrainedConfig

    values, _ = PreTrainedConfig.get_config_dict(name, local_files_only=local)
    check_config_values(values)
    config: Any = AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=local)
    # A config may name a kernel repository of the Hub here, which transformers would download and run.
    for name in ("_attn_implementation", "_experts_implementation"):
        if not hasattr(config, name):
            raise UserError(f"A config of the installed transformers has no {name}. {TESTED_VERSIONS}")
        setattr(config, name, None)
    return config  # type: ignore[no-any-return]


def find_blocks(module: PreTrainedModel, count: int | None) -> nn.ModuleList:
    """The list of a language model's ``count`` blocks. Raises UserError if it has none."""
    for candidate in module.get_decoder().modules():
        # Blocks have modules inside, unlike projections or norms of which there may be as many.
        if (
            isinstance(candidate, nn.ModuleList)
            and len(candidate) == count
            and all(any(True for _ in block.children()) for block in candidate)
        ):
            return candidate
    counted = "its config has no num_hidden_layers" if count is None else f"it has no list of {count} blocks"
    raise UserError(f"A {type(module).__name__} is not supported: {counted}.")


def _up_to(config: PreTrainedConfig, last_layer: int | None) -> PreTrainedConfig:
    """Config of the blocks up to ``last_layer``; the same config where the other weights would change with it."""
    whole = config.get_text_config()
    count = getattr(whole, "num_hidden_layers", None)
    # The last blocks, whichever they are, may use the keys and values of others.
    if last_layer is None or count is None or last_layer + 1 >= count or getattr(whole, "num_kv_shared_layers", 0):
        return config
    short = copy.deepcopy(config)
    text = short.get_text_config()
    for name, value in vars(text).items():  # such as the kind of attention of each block
        if isinstance(value, list | tuple) and len(value) == count:
            setattr(text, name, value[: last_layer + 1])
    text.num_hidden_layers = last_layer + 1
    try:
        part = _shapes(_build_outline(short))
    except _unreadable():  # the architecture needs other numbers of blocks
        return config
    return config if part.items() - _shapes(_build_outline(config)).items() else short


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in module.state_dict().items()}


def _distributed(config: PreTrainedConfig, sharding: Sharding) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` for a sharded language model."""
    try:
        from transformers.distributed.configuration_utils import DistributedConfig
    except ImportError as error:
        raise UserError(f"--shard-model needs a newer transformers ({first_line(error)}). {TESTED_VERSIONS}") from error
    processes = sharing_processes()
    copies = int(os.environ.get("WORLD_SIZE", "1")) // processes
    if sharding == "tp":
        if copies > 1:
            raise UserError("--shard-model=tp needs all processes on one machine. Use --shard-model=fsdp.")
        return {"distributed_config": DistributedConfig(tp_size=processes)}
    outline = _build_outline(config)
    names = {module: name for name, module in outline.named_modules()}
    blocks = find_blocks(outline, getattr(config.get_text_config(), "num_hidden_layers", None))
    # transformers has such a plan for most architectures, but not for all, and none whose root stops at the blocks.
    plan = {f"{names[blocks]}.*": "free_full_weight", names[outline.get_input_embeddings()]: "free_full_weight"}
    if names[outline.get_decoder()]:
        plan[names[outline.get_decoder()]] = "keep_full_weight"
    if (head := outline.get_output_embeddings()) is not None:
        plan[names[head]] = "keep_full_weight"
    return {"distributed_config": DistributedConfig(fsdp_size=processes, dp_replicate_size=copies, fsdp_plan=plan)}


def _check_can_load(config: PreTrainedConfig, folder: Path) -> None:
    """Raise an error if weights in the folder, or packages that they need, are missing. Reads no weights. A folder with
    nothing but a config can be planned with."""
    quantization = getattr(config, "quantization_config", None) or getattr(
        config.get_text_config(), "quantization_config", None
    )
    if quantization is not None:
        from transformers.quantizers.auto import AutoHfQuantizer

        AutoHfQuantizer.from_config(quantization, pre_quantized=True).validate_environment(device_map=None)
    index = folder / INDEX
    if index.is_file():
        named = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        missing = sorted(name for name in named if not (folder / name).is_file())
        if missing:
            raise _BadWeightsError(f"{', '.join(missing[:WEIGHTS_NAMED])}: named in {INDEX}, but not in the folder")
    elif stored_weights(folder) is None and (pickled := sorted(folder.glob("*.bin"))):
        raise _BadWeightsError(f"{pickled[0].name}: pickled weights can run code. Supported are .safetensors files")


def _build_outline(config: PreTrainedConfig) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        module: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return module


def _is_no_load_report(record: logging.LogRecord) -> bool:
    """Filter out the table of missing and unexpected weights, about which ``_check_weights`` raises an error."""
    return "LOAD REPORT" not in record.getMessage()


class _BadWeightsError(Exception):
    """The files lack weights, or hold weights of another shape or without a finite value."""


def _check_weights(module: PreTrainedModel, report: Mapping[str, Any]) -> None:
    """Raise _BadWeightsError if any parameter was initialised at random or is not finite."""
    not_finite: list[str] = []
    for prefix, child in module.named_modules():
        with weights_at_hand(child):
            for name, weight in child.named_parameters(recurse=False):
                parameter = weight.to_local() if is_shard(weight) else weight
                # Both extremes are NaN where any value is, and this takes a tenth of the time of isfinite().all().
                is_number = parameter.is_floating_point() and parameter.numel() > 0
                if is_number and not torch.stack(parameter.detach().aminmax()).isfinite().all():
                    not_finite.append(f"{prefix}.{name}".removeprefix("."))
    problems = {
        "missing from the files": sorted(report["missing_keys"]),
        "of another shape than the config says": sorted(name for name, *_ in report["mismatched_keys"]),
        "not finite (NaN or infinity)": sorted(not_finite),
    }
    for problem, names in problems.items():
        if names:
            more = f" and {len(names) - WEIGHTS_NAMED} more" if len(names) > WEIGHTS_NAMED else ""
            raise _BadWeightsError(f"{', '.join(names[:WEIGHTS_NAMED])}{more}: {problem}")


def is_shard(weight: Tensor) -> TypeGuard[DTensor]:
    """True if a weight is spread over several processes."""
    return hasattr(weight, "to_local")


def _read(source: str, reader: Callable[[str, bool], T]) -> T:
    """Return ``reader(name, local)`` of a folder or a Hub name; ``local`` allows no download."""
    folder = local_folder(source)
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    # If the Hub is out of reach, use the local cache right away: its client would retry for half a minute.
    local = folder is None and is_unreachable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hints for callers of transformers; failures raise
        try:
            return reader(source if folder is None else str(folder), local)
        except _BadWeightsError as error:
            raise UserError(
                f"The weights of {source} cannot be used. {error}. Download, copy or convert the language model again."
            ) from error
        except ImportError as error:  # quantised models and rare architectures need other packages
            raise UserError(
                f"The language model {source} needs a package that is not installed: {first_line(error)}. Install it, "
                "or use a language model without it."
            ) from error
        except SafetensorError as error:
            raise UserError(f"The weights of {source} are damaged ({error}). Download or copy them again.") from error
        except _unreadable() as error:
            if local:
                raise UserError(
                    f"The language model {source} is not a folder and is not in the local cache, and the Hub "
                    f"({endpoint()}) does not answer. Check the network, or give a folder."
                ) from error
            raise UserError(
                f"The language model {source} cannot be loaded ({first_line(error)}). Check its name, or give a folder "
                "with a causal language model."
            ) from error


def _unreadable() -> tuple[type[Exception], ...]:
    """Exceptions that transformers raises when the values in a model's files do not fit its classes."""
    from huggingface_hub.errors import StrictDataclassError

    fits = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)
    return (*fits, StrictDataclassError)
