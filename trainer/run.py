"""A run directory: one fitted layer with all that is needed to use it again.

runs/NAME/run.json             the settings it was fitted with
          layer.json           what the layer is
          layer.safetensors    its weights, once fitting has finished
          units.json           the 99th percentile of each expert's coefficient, once it has been indexed
          tokenizer/           of its language model, so that contexts can be read without the language model
          checkpoint-STEP/     the last whole checkpoint: weights, optimiser, position
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from trainer.config import SAMPLE, LayerConfig, TrainConfig
from trainer.errors import NotFoundError, UserError
from trainer.files import is_held, write_whole
from trainer.layers.registry import load_layer
from trainer.layers.sparse import WEIGHTS_FILE, SparseLayer, read_layer_config
from trainer.tokens import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RUN_FILE = "run.json"
LOCK_FILE = ".fitting"
UNITS_FILE = "units.json"
TOKENIZER_FOLDER = "tokenizer"
CHECKPOINT_PREFIX = "checkpoint-"


def runs_folder(data: Path) -> Path:
    """Where the run directories of a data folder are."""
    return data / "runs"


@dataclass(frozen=True)
class Run:
    """A run directory and its settings. Weights and tokenizer are read when they are first asked for."""

    folder: Path
    config: TrainConfig

    @classmethod
    def load(cls, name: str | Path, data: Path = Path("data")) -> Run:
        """A run by its folder, or by its name under ``data``; the shipped run by its name alone.

        Raises:
            NotFoundError: there is no such run.
            UserError: its settings are damaged.
        """
        candidates = [Path(name), runs_folder(data) / name, runs_folder(SAMPLE) / name]
        folder = next((path for path in candidates if (path / RUN_FILE).is_file()), None)
        if folder is None:
            known = ", ".join(run_names(data)) or "none yet"
            raise NotFoundError(f"There is no run {name} under {runs_folder(data)} (there are: {known}).")
        try:
            return cls(folder, TrainConfig.model_validate(json.loads((folder / RUN_FILE).read_text())))
        except (ValidationError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{folder / RUN_FILE} is damaged; restore it from a copy or fit the run again.") from error

    @classmethod
    def create(cls, config: TrainConfig, data: Path, tokenizer: PreTrainedTokenizerBase) -> Run:
        """Make the directory of a new run. The settings are written last: a folder without them is no run."""
        folder = runs_folder(data) / config.name
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)
        write_whole(folder / RUN_FILE, config.model_dump_json(indent=1) + "\n")
        return cls(folder, config)

    @property
    def name(self) -> str:
        """Its name in the store and under ``runs``."""
        return self.config.name

    @property
    def language_model_source(self) -> str:
        """Hub name or folder of its language model; a folder may also be named from the data folder, so that both
        can be moved together. Runs that name one folder differently give the same."""
        named = Path(self.config.language_model)
        for folder in (self.folder.parent.parent / named, named):
            if folder.is_dir():
                return str(folder.resolve())
        return self.config.language_model

    @cached_property
    def units(self) -> Mapping[int, float]:
        """Expert -> the 99th percentile of its coefficient, the unit of edits; empty where no index was made.

        Raises:
            UserError: the file is damaged.
        """
        path = self.folder / UNITS_FILE
        if not path.is_file():
            return {}
        try:
            return {int(expert): float(unit) for expert, unit in json.loads(path.read_text()).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is damaged; delete it, or index the run again.") from error

    def write_units(self, units: Mapping[int, float]) -> None:
        """Keep the units beside the weights, so that an edit means the same wherever the run is taken."""
        write_whole(self.folder / UNITS_FILE, json.dumps({str(expert): unit for expert, unit in units.items()}) + "\n")
        self.__dict__.pop("units", None)

    @property
    def is_begun(self) -> bool:
        """Whether there is anything to go on from: a finished layer or a checkpoint."""
        return (self.folder / WEIGHTS_FILE).is_file() or self.last_checkpoint() is not None

    @property
    def lock(self) -> Path:
        """Held by the process that fits it."""
        return self.folder / LOCK_FILE

    @property
    def is_fitting(self) -> bool:
        """Whether a living process on this machine is fitting it now."""
        return is_held(self.lock)

    @property
    def weights_folder(self) -> Path:
        """The finished layer's folder, or the last checkpoint's.

        Raises:
            NotFoundError: it has neither.
        """
        if (self.folder / WEIGHTS_FILE).is_file():
            return self.folder
        checkpoint = self.last_checkpoint()
        if checkpoint is None:
            raise NotFoundError(f"The run {self.name} has no weights yet; continue it with {self.resume_command()}.")
        return checkpoint

    @cached_property
    def layer_config(self) -> LayerConfig:
        """What the layer is."""
        return read_layer_config(self.weights_folder)

    @cached_property
    def layer(self) -> SparseLayer:
        """The layer, in float32 on the CPU."""
        return load_layer(self.weights_folder)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Of its language model."""
        return load_tokenizer(str(self.folder / TOKENIZER_FOLDER))

    def last_checkpoint(self) -> Path | None:
        """The newest whole checkpoint; half-written ones have other names and are never seen."""
        return next(iter(checkpoints(self.folder)), None)

    def resume_command(self) -> str:
        """What to type to go on fitting it."""
        return f"mxd train --name {self.name} --resume"


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run directory, newest first."""
    return sorted((path for path in folder.glob(f"{CHECKPOINT_PREFIX}*") if path.is_dir()), key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The steps that had been taken when it was written."""
    return int(checkpoint.name.removeprefix(CHECKPOINT_PREFIX))


def run_names(data: Path) -> list[str]:
    """Names of all runs of a data folder, sorted."""
    return sorted(path.parent.name for path in runs_folder(data).glob(f"*/{RUN_FILE}"))
