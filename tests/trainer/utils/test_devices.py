"""Names of devices, errors of memory, and freed memory, with imitated accelerators."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from mxd.trainer.errors import UserError, is_out_of_memory
from mxd.trainer.language_model.loading import choose_device, choose_dtype
from mxd.trainer.utils.devices import device_memory, device_name, in_float64


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an accelerator of two devices, which is CUDA by name."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "Unknown device: 'gpu'. Allowed: auto, auto-map, cpu, cuda"),
        ("", "Unknown device: ''"),
        ("cuda:x", "Unknown device: 'cuda:x'"),
        ("cuda:2", "Device not available: 'cuda:2'. This machine has cuda:0, cuda:1."),
        ("mps", "Device not available: 'mps'. PyTorch finds 'cuda' here. Use --device=auto or cpu."),
        ("meta", "Device not available: 'meta'"),
    ],
)
def test_unusable_devices_are_named(two_gpus: None, name: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        choose_device(name)
    assert str(raised.value).startswith(message)


def test_usable_devices(two_gpus: None) -> None:
    assert choose_device("auto") == choose_device("auto-map") == choose_device("cuda") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert choose_device("cpu") == torch.device("cpu")


def test_a_machine_without_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(UserError, match=r"'cuda'\. PyTorch finds no accelerator here"):
        choose_device("cuda")
    assert device_name(torch.device("cpu")) == f"CPU, {torch.get_num_threads()} threads"
    assert device_memory(torch.device("cpu")) is None


@pytest.mark.parametrize(("is_native", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_emulated_bfloat16_is_no_default(monkeypatch: pytest.MonkeyPatch, is_native: bool, dtype: torch.dtype) -> None:
    """A T4 or V100 says that it supports bfloat16, which it emulates."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation or is_native)
    assert choose_dtype(torch.device("cuda:1")) == dtype
    assert choose_dtype(torch.device("cpu")) == torch.float32


def test_memory_of_a_shared_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPS has no mem_get_info, and no name."""
    shared = SimpleNamespace(recommended_max_memory=lambda: 12 << 30, driver_allocated_memory=lambda: 2 << 30)
    monkeypatch.setattr(torch, "mps", shared)
    assert device_memory(torch.device("mps")) == (10 << 30, 12 << 30)
    assert device_name(torch.device("mps")) == "Apple GPU (MPS)"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("any text"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("UR backend failed: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
        (RuntimeError("index out of bounds"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_float64_is_left_to_the_cpu_where_the_device_may_lack_it() -> None:
    assert in_float64(torch.ones(2)).dtype == torch.float64
    elsewhere = SimpleNamespace(device=torch.device("mps"), cpu=lambda: torch.ones(2))  # .double() would fail
    assert in_float64(elsewhere).dtype == torch.float64  # type: ignore[arg-type]


PROGRAM = """
import resource, threading, torch
from mxd.trainer.utils.memory import keep_freed_memory, keep_freed_memory_in_threads
def make_tensors():
    for _ in range(12):  # until the heap has grown to its final size
        torch.ones(1 << 24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(1 << 24)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
HERE = "assert keep_freed_memory(); make_tensors()"
IN_A_THREAD = """
assert keep_freed_memory_in_threads()
thread = threading.Thread(target=make_tensors)
thread.start()
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is supported")
@pytest.mark.parametrize("where", [HERE, IN_A_THREAD])
def test_freed_memory_is_reused(where: str) -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM + where], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 4096, "64 MiB of fresh pages each time would be 8 times 16,384"


RELEASED = """
import torch
from mxd.trainer.training.rates import resident_bytes
from mxd.trainer.utils.memory import keep_freed_memory, release_pages
keep_freed_memory()
tensor, after = torch.ones(1 << 24), torch.ones(1 << 10)
before = resident_bytes()
release_pages(tensor)
print((before - resident_bytes()) / tensor.nbytes)
assert after.all() and tensor[1 << 10 : -1 << 10].count_nonzero() == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux returns pages")
def test_pages_are_returned_while_a_tensor_exists() -> None:
    result = subprocess.run([sys.executable, "-c", RELEASED], capture_output=True, text=True, check=True)
    assert float(result.stdout) > 0.9
