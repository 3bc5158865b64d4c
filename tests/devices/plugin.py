"""Pytest plugin that installs ``sim:0`` and ``sim:1``, with which the program then works as on CUDA.

Run a walk alone with ``python -m pytest -n 0 -p tests.devices.plugin tests/devices/walk_training.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.devices import pretend_device

pretend_device.install(devices=2)

from mxd.backend.cli.main import run as run_command  # noqa: E402
from mxd.trainer.language_model import loading  # noqa: E402
from mxd.trainer.language_model.model import LanguageModel  # noqa: E402
from tests.helpers.language_models import saved_language_model  # noqa: E402
from tests.helpers.runs import small_world  # noqa: E402

SIZES = "--context-length 16 --batch-tokens 64 --buffer-tokens 256 --log-every 4"
TEXT = "--dataset text.jsonl --on-short-text repeat"
SPLIT = dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.layers.0"), "sim:0") | dict.fromkeys(
    ("model.layers.1", "model.layers.2", "model.norm", "lm_head"), "sim:1"
)
"""Device of each module of a language model that ``auto-map`` has split."""


def replace_everywhere(original: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Replace a function in its module and in all that imported it by name."""
    for module in list(sys.modules.values()):
        for name in [name for name, value in vars(module).items() if value is original]:
            setattr(module, name, replacement)


def pytest_configure() -> None:
    """Choose the dtype as on CUDA, and split a dispatched language model over both devices."""
    replace_everywhere(
        loading.choose_dtype, lambda device: torch.bfloat16 if device.type == pretend_device.NAME else torch.float32
    )
    choose_device, dispatched = loading.choose_device, LanguageModel.dispatched.__func__  # type: ignore[attr-defined]
    replace_everywhere(
        choose_device, lambda name: choose_device("sim" if name in ("auto", "auto-map", "cuda") else name)
    )

    def split(cls: type[LanguageModel], source: str, _map: object, dtype: torch.dtype) -> LanguageModel:
        result: LanguageModel = dispatched(cls, source, SPLIT, dtype)
        return result

    LanguageModel.dispatched = classmethod(split)  # type: ignore[assignment, method-assign]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Working directory with text, a Llama ``lm`` and a data folder."""
    made = tmp_path_factory.mktemp("walk")
    small_world(made).database.dispose()
    saved_language_model(made / "lm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXD_DATA", str(made / "data"))
        patch.chdir(made)
        yield made


def mxd(line: str, *more: str) -> None:
    """Run a command. An error of the device is a traceback here, and a message of the program fails too."""
    words = line.split()
    assert run_command([*words, *more]) == 0, line


def train(name: str, flags: str = "", tokens: int = 512) -> None:
    """Train a run of the layer 1 of ``lm`` on the device."""
    defaults = {"--layer": "1", "--k": "4", "--num-experts": "40"}
    left = " ".join(f"{flag} {value}" for flag, value in defaults.items() if flag not in flags)
    mxd(f"train lm {TEXT} {SIZES} --tokens {tokens} --name {name} {left} {flags}")
