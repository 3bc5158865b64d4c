"""A pretend accelerator, ``sim``: its tensors compute on the CPU, but refuse what CUDA tensors refuse.

A ``SimTensor`` is a wrapper subclass around a CPU tensor. Autograd, ``torch.func``, hooks and optimizers work above
``__torch_dispatch__``. Every ATen operation arrives there. The devices of its arguments are checked. It runs on the CPU
tensors, and its results are wrapped. ``install`` registers the device for the whole process and for good, so the tests
that need it run in processes of their own (see ``test_devices``).

It sees:

- two devices in one operation, ``sim:0`` with ``sim:1`` too. As with CUDA, a CPU tensor may be a 0-dim operand of a
  pointwise operation, an index into a tensor of the device, and either side of a copy;
- a CPU generator for random numbers on the device, and ``tensor.numpy()``;
- every wait for the device, with ``recording``: numbers and sizes that Python needs, masks as indices, and copies
  from and to the CPU.

It cannot see: kernels (except in Triton's interpreter), rounding, streams, memory, non-determinism, and code behind
``tensor.is_cuda``. ``module.to("sim")`` makes new parameters, so tied weights are no longer tied. Sparse
tensors stay on the CPU.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from threading import local
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "sim"
aten = torch.ops.aten

COPIES = {aten.copy_.default, aten._to_copy.default, aten._copy_from.default}
"""Operations between devices."""
INDEXING = {
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index_put.default,
}
"""Operations whose second argument is a list of indices, which may be on the CPU."""
TAKE_NUMBERS = {
    *INDEXING,
    aten.fill.Tensor,
    aten.fill_.Tensor,
    aten.index_fill.int_Tensor,
    aten.index_fill_.int_Tensor,
    aten.masked_fill.Tensor,
    aten.masked_fill_.Tensor,
    aten.where.self,
    aten._fused_adamw_.tensor_lr,
}
"""Operations, beside the pointwise ones, that accept 0-dim CPU tensors."""
WAIT = {
    aten._local_scalar_dense.default,
    aten._unique2.default,
    aten.bincount.default,
    aten.equal.default,
    aten.masked_select.default,
    aten.nonzero.default,
    aten.repeat_interleave.Tensor,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
}
"""Operations that return a number, or a tensor whose size depends on the values."""
BELOW_DISPATCH = (
    aten._copy_from.default,
    aten._efficientzerotensor.default,
    aten._local_scalar_dense.default,
    aten._reshape_alias.default,
    aten.as_strided.default,
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.view.default,
)
"""Factories, and operations that PyTorch calls without ``__torch_dispatch__``."""
SIZES: dict[str, Callable[..., Any]] = {
    "dim": Tensor.dim,
    "is_contiguous": lambda raw, *_: raw.is_contiguous(),
    "is_non_overlapping_and_dense": aten.is_non_overlapping_and_dense.default,
    "is_strides_like_format": aten.is_strides_like_format.default,
    "numel": Tensor.numel,
    "size": Tensor.size,
    "storage_offset": Tensor.storage_offset,
    "stride": Tensor.stride,
}
"""Questions about the shape of a tensor -> the answer, from its CPU tensor."""


AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class DeviceMismatchError(RuntimeError):
    """CUDA would report tensors or a generator on the wrong device."""


_thread = local()
_library, _aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")


def install() -> None:
    """Register ``sim:0`` and ``sim:1``."""
    _setup_privateuseone_for_python_backend(NAME, Module())
    for func in BELOW_DISPATCH:
        _aten.impl(func, partial(_compute, func), "PrivateUse1")
    _library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for func in (aten.addmm.default, aten.bmm.default, aten.linear.default, aten.matmul.default, aten.mm.default):
        _aten.impl(func, partial(_autocast, func), "AutocastPrivateUse1")
    engine = torch.autograd.graph._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        # An error in a backward pass on a Python backend aborts the process, so errors are raised at its end.
        outer, _thread.errors = getattr(_thread, "errors", None), []
        try:
            with torch.autograd.set_multithreading_enabled(False):
                result = engine(*args, **kwargs)
            for error in _thread.errors:
                raise error
            return result
        finally:
            _thread.errors = outer

    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]
    torch.autograd.graph._engine_run_backward = run_backward


@contextmanager
def recording() -> Iterator[Counter[str]]:
    """Count this thread's waits for the device: "operation file:line", with the innermost line of the trainer."""
    outer, _thread.waits = getattr(_thread, "waits", None), Counter[str]()
    try:
        yield _thread.waits
    finally:
        _thread.waits = outer


class Module:
    """The part of ``torch.cuda`` that is expected of ``torch.sim``: random numbers and memory are the CPU's."""

    is_available = is_initialized = is_bf16_supported = staticmethod(lambda *_: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 2)
    synchronize = staticmethod(lambda _device=None: _record("synchronize"))
    manual_seed_all = empty_cache = set_rng_state = staticmethod(lambda *_: None)
    get_rng_state = staticmethod(lambda _device=None: torch.default_generator.get_state())
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])
    memory_allocated = max_memory_allocated = staticmethod(lambda _device=None: 0)
    mem_get_info = staticmethod(lambda _device=None: (16 << 30, 16 << 30))
    get_device_name = staticmethod(lambda _device=None: "pretend device")

    @staticmethod
    def current_device() -> int:
        """The thread's current device; 0 in a new thread, as with CUDA."""
        return getattr(_thread, "device", 0)

    @staticmethod
    def set_device(device: Any) -> None:
        """Set the thread's current device."""
        _thread.device = device if isinstance(device, int) else _with_index(torch.device(device)).index

    @classmethod
    @contextmanager
    def device(cls, device: Any) -> Iterator[None]:
        """Select a device inside the context."""
        outer = cls.current_device()
        cls.set_device(device)
        try:
            yield
        finally:
            cls.set_device(outer)


class SimTensor(Tensor):
    """A tensor on the device; ``raw`` is the CPU tensor with its values."""

    raw: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, raw: Tensor, device: torch.device) -> "SimTensor":
        made: SimTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=device,
            dispatch_sizes_strides_policy="sizes",  # operations with an output argument change its shape
        )
        made.raw = raw
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.raw!r} on {self.device}"

    def tolist(self) -> Any:
        """Values, after a wait."""
        _record("tolist")
        return self.raw.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        """Refused, as on CUDA."""
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    @property
    def data(self) -> Tensor:
        """The values, without gradients; ``module.to`` replaces them."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.raw = _raw(value)

    def untyped_storage(self) -> torch.UntypedStorage:
        """Memory of the CPU tensor: safetensors looks for tensors that share it."""
        return self.raw.untyped_storage()

    def register_hook(self, hook: Any) -> Any:
        """Register a hook whose errors are raised at the end of the backward pass."""

        def guarded(gradient: Tensor) -> Any:
            try:
                return hook(gradient)
            except Exception as error:  # noqa: BLE001
                return _raise_later(error)

        return super().register_hook(guarded)  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if (size := _size(func)) is not None:
            return size(*map(_raw, args))
        return _compute(func, *args, **(kwargs or {}))


def _compute(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Check the devices of an operation, run it on CPU tensors, and wrap its results."""
    name, is_view, is_composite = _facts(func)
    if is_composite:
        return func.decompose(*args, **kwargs)  # in inference mode they arrive here
    if func is aten._fused_sdp_choice.default:
        return 0  # attention by plain operations
    if func is aten._efficientzerotensor.default:
        func = aten.zeros.default  # the zeros of forward derivatives have no memory
    tensors: list[Tensor] = []
    raw_args = _raws(args, tensors)
    raw_kwargs = {word: _raws(value, tensors) for word, value in kwargs.items() if word != "pin_memory"}
    target = _common_device(func, args, kwargs, tensors)
    if kwargs.get("device") is not None:
        target, raw_kwargs["device"] = _with_index(torch.device(kwargs["device"])), "cpu"
    _record_waits(func, name, args, tensors, target)
    if func is aten._copy_from.default:
        raw_args[1].copy_(raw_args[0])
        return args[1]
    # Without gradients and autocast; ten times faster than their public context managers.
    with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
        results = func(*raw_args, **raw_kwargs)
    wrappers = {id(_raw(value)): value for value in tensors}
    # In inference mode, a view of a normal tensor is a normal tensor.
    is_normal = torch.is_inference_mode_enabled() and is_view and not any(value.is_inference() for value in tensors)

    def wrapped(value: Tensor) -> Tensor:
        if target.type != NAME or value.layout != torch.strided:
            return value
        if (given := wrappers.get(id(value))) is not None:
            return given
        with torch.inference_mode(mode=False) if is_normal else nullcontext():
            return SimTensor(value, target)

    return _map(wrapped, results)


@cache
def _facts(func: Any) -> tuple[str, bool, bool]:
    """Name of an operation, without ``sym_``; whether it returns views; whether it is made of other operations."""
    is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
    name = func._schema.name.removeprefix("aten::").removeprefix("sym_")
    return name, is_view, func._can_decompose()


@cache
def _size(func: Any) -> Callable[..., Any] | None:
    """Answer of a question about the shape of a tensor; None for other operations."""
    return SIZES.get(func._schema.name.removeprefix("aten::").removeprefix("sym_"))


def _raws(value: Any, tensors: list[Tensor]) -> Any:
    """``value`` with CPU tensors in place of those on the device, which are added to ``tensors``, as are others."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return value.raw if type(value) is SimTensor else value
    return type(value)([_raws(each, tensors) for each in value]) if type(value) in (list, tuple) else value


def _map(function: Callable[[Tensor], Any], value: Any) -> Any:
    """``function`` of every tensor in nested lists and tuples; many times faster than PyTorch's ``tree_map``."""
    if isinstance(value, Tensor):
        return function(value)
    return type(value)([_map(function, each) for each in value]) if type(value) in (list, tuple) else value


def _autocast(func: Any, *args: Any) -> Any:
    """Matrix product with its inputs rounded to the dtype of ``torch.autocast``."""
    dtype = torch.get_autocast_dtype(NAME)
    with torch.autocast(NAME, enabled=False):
        return func(*(value.to(dtype) if isinstance(value, Tensor) else value for value in args))


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, SimTensor) else value


def _with_index(device: torch.device) -> torch.device:
    if device.type != NAME or device.index is not None:
        return device
    return torch.device(NAME, Module.current_device())


def _common_device(func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor]) -> torch.device:
    """Device on which an operation runs.

    Raises:
        DeviceMismatchError: CUDA would refuse its arguments; in a backward pass, at its end.
    """
    devices = {value.device: None for value in tensors if isinstance(value, SimTensor)}
    device = next(iter(devices), _with_index(torch.device(NAME)))
    generator = kwargs.get("generator")
    refused: list[str] = []
    if generator is not None and generator.device.type != NAME:
        refused = [f"Expected a '{NAME}' device type for generator but found '{generator.device.type}'"]
    elif func not in COPIES and any(value.device != device for value in tensors):
        allowed = _allowed_on_the_cpu(func, args, kwargs, tensors)
        others = [value for value in tensors if value.device != device and id(value) not in allowed]
        refused = [
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{device} and {value.device}! (shape {tuple(value.shape)})"
            for value in others
        ]
    if refused:
        _raise_later(DeviceMismatchError(f"{refused[0]} in {func}"))
    return device


def _allowed_on_the_cpu(func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor]) -> set[int]:
    """Ids of the CPU tensors that CUDA accepts: indices, and 0-dim operands that are only read."""
    on_cpu = [value for value in tensors if not isinstance(value, SimTensor)]
    allowed = {id(value) for value in on_cpu if func in INDEXING and any(value is index for index in args[1])}
    if func in TAKE_NUMBERS or torch.Tag.pointwise in func.tags:
        given = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
        written = {
            id(value)
            for each in func._schema.arguments
            if each.alias_info is not None and each.alias_info.is_write
            for value in [given.get(each.name)]
        }
        allowed |= {id(value) for value in on_cpu if value.dim() == 0 and id(value) not in written}
    return allowed - ({id(args[0])} if func in INDEXING else set())


def _raise_later(error: Exception) -> None:
    """Raise an error: now, or at the end of the backward pass of this thread."""
    errors = getattr(_thread, "errors", None)
    if errors is None:
        raise error
    errors.append(error)


def _record_waits(func: Any, name: str, args: Any, tensors: list[Tensor], target: torch.device) -> None:
    if func in WAIT:
        _record(name)
    elif func in COPIES:
        # Copies from and to pageable memory wait, those within a device do not.
        if target.type != NAME:
            _record("copy to the CPU")
        elif not all(isinstance(value, SimTensor) for value in tensors):
            written = args[1] if func is aten._copy_from.default else args[0]
            to_device = func is aten._to_copy.default or isinstance(written, SimTensor)
            _record("copy to the device" if to_device else "copy to the CPU")
    elif func in INDEXING:
        for index in (value for value in args[1] if value is not None):
            if index.dtype in (torch.bool, torch.uint8):
                _record("mask as an index")
            elif not isinstance(index, SimTensor):
                _record("index from the CPU")


def _record(operation: str) -> None:
    waits = getattr(_thread, "waits", None)
    if waits is not None:
        frame = inspect.currentframe()
        while frame is not None and "/trainer/" not in frame.f_code.co_filename:
            frame = frame.f_back
        place = "elsewhere"
        if frame is not None:
            place = f"{frame.f_code.co_filename.rpartition('/trainer/')[2]}:{frame.f_lineno}"
        waits[f"{operation} {place}"] += 1
