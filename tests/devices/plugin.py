"""Pytest plugin that installs ``sim:0`` and ``sim:1``, with which the program then works as on CUDA.

Run the walks alone with ``python -m pytest -n 0 -p tests.devices.plugin tests/devices/walks.py``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.devices import pretend_device

pretend_device.install()

from mxd.backend.cli.main import run as run_command  # noqa: E402
from mxd.trainer.evaluation import metrics  # noqa: E402
from mxd.trainer.language_model.model import LanguageModel  # noqa: E402
from tests.helpers.runs import saved_language_model, small_world  # noqa: E402

SIZES = "--context-length 16 --batch-tokens 64 --buffer-tokens 256 --log-every 4"
TEXT = "--dataset text.jsonl --on-short-text repeat"
SPLIT = dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.layers.0"), "sim:0") | dict.fromkeys(
    ("model.layers.1", "model.layers.2", "model.norm", "lm_head"), "sim:1"
)
"""Device of each module of a language model that ``auto-map`` has split."""


def pytest_configure() -> None:
    """Split a language model that is dispatched over both devices, and continue texts by few tokens."""
    with pytest.raises(pretend_device.DeviceMismatchError):
        torch.ones(3, device="sim:0") + torch.ones(3)
    vars(metrics)["CONTINUATION_LENGTHS"] = (1, 2)
    dispatched = LanguageModel.dispatched.__func__  # type: ignore[attr-defined]

    def split(
        cls: type[LanguageModel], source: str, _map: object, dtype: torch.dtype, last_layer: int | None = None
    ) -> LanguageModel:
        result: LanguageModel = dispatched(cls, source, SPLIT, dtype, last_layer)
        return result

    LanguageModel.dispatched = classmethod(split)  # type: ignore[assignment, method-assign]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Working directory with text, a Llama ``lm`` and a data folder."""
    made = tmp_path_factory.mktemp("walk")
    small_world(made).database.dispose()
    saved_language_model(made / "lm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXD_DATA", str(made / "data"))
        patch.chdir(made)
        yield made


@pytest.fixture(scope="session")
def runs(folder: Path) -> Path:
    """The runs ``one``, ``two`` (of the layers 1 and 2, both indexed) and ``seeded``, and texts to compare."""
    lines = (folder / "text.jsonl").read_text().splitlines()
    (folder / "other.jsonl").write_text("\n".join(line.replace("fox", "cow") for line in reversed(lines)))
    labelled = [line.replace("{", f'{{"label": "{"fox" in line}", ', 1) for line in lines[:40]]
    (folder / "labelled.jsonl").write_text("\n".join(labelled))
    for name, flags in {"one": "", "two": "--layer 2", "seeded": "--seed 1"}.items():
        train(name, flags)
    for name in ("one", "two"):
        run_line(f"index {name} {TEXT} --tokens 1k")
    run_line("ablate one --experts 1,2,3,4")
    return folder


def run_line(line: str, *more: str) -> None:
    """Run a command. An error of the device is a traceback here, and a message of the program fails too."""
    words = line.split()
    assert run_command([*words, *more]) == 0, line


def train(name: str, flags: str = "", tokens: int = 512) -> None:
    """Train a run of the layer 1 of ``lm`` on the device."""
    defaults = {"--layer": "1", "--k": "4", "--num-experts": "40"}
    left = " ".join(f"{flag} {value}" for flag, value in defaults.items() if flag not in flags)
    run_line(f"train lm {TEXT} {SIZES} --tokens {tokens} --name {name} {left} {flags}")
