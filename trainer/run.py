"""A run directory: one fitted layer with all that is needed to use it again.

runs/NAME/run.json             the settings it was fitted with
          layer.json           what the layer is
          layer.safetensors    its weights, once fitting has finished
          units.json           the 99th percentile of each expert's coefficient, once it has been indexed
          metrics.json         how fitting went
          tokenizer/           of its language model, so that contexts can be read without the language model
          checkpoint-STEP/     the last whole checkpoint: weights, optimiser, position
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from trainer.card import write_card
from trainer.config import SAMPLE, LayerConfig, TrainConfig
from trainer.errors import NotFoundError, UserError
from trainer.files import is_held, read_json, whole_folder, write_whole
from trainer.layers.saved import CONFIG_FILE, WEIGHTS_FILE, read_layer_config
from trainer.repositories import fetch_repository, looks_like_path, upload_folder
from trainer.sharing import TOKENIZER_FILES, copy_files, copy_tokenizer, is_hub_name, portable, refuse_full
from trainer.tokens import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from trainer.layers.sparse import SparseLayer

RUN_FILE = "run.json"
LOCK_FILE = ".fitting"
UNITS_FILE = "units.json"
METRICS_FILE = "metrics.json"
CARD_FILE = "README.md"
TOKENIZER_FOLDER = "tokenizer"
CHECKPOINT_PREFIX = "checkpoint-"
SHARED_FILES = (CONFIG_FILE, WEIGHTS_FILE, UNITS_FILE, METRICS_FILE)
"""What is shared beside settings and tokenizer."""


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
            return cls(folder, TrainConfig.model_validate(read_json(folder / RUN_FILE)))
        except ValueError as error:
            raise UserError(f"{folder / RUN_FILE} is damaged; restore it from a copy or fit the run again.") from error

    @classmethod
    def create(cls, config: TrainConfig, data: Path, tokenizer: PreTrainedTokenizerBase) -> Run:
        """Make the directory of a new run. The settings are written last: a folder without them is no run."""
        folder = runs_folder(data) / config.name
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)
        write_whole(folder / RUN_FILE, config.model_dump_json(indent=1) + "\n")
        return cls(folder, config)

    @classmethod
    def from_pretrained(cls, source: str | Path, revision: str | None = None) -> Run:
        """A run by a folder, or a repository of the hub (``OWNER/NAME``), from ``save_pretrained`` or ``push_to_hub``.

        Raises:
            NotFoundError: there is no such folder or repository, or no run in it.
            UserError: the hub cannot be reached, or the settings are damaged.
        """
        if Path(source).expanduser().is_dir():
            return cls.load(Path(source).expanduser())
        if looks_like_path(str(source)):
            raise NotFoundError(f"There is no folder {source}; give one, or a repository of the hub as OWNER/NAME.")
        patterns = [*SHARED_FILES, RUN_FILE, *(f"{TOKENIZER_FOLDER}/{pattern}" for pattern in TOKENIZER_FILES)]
        return cls.load(fetch_repository(str(source), revision, patterns))

    def save_pretrained(
        self, folder: str | Path, language_model: str | None = None, figures: Mapping[str, str] | None = None
    ) -> Path:
        """Write the run into a new folder: settings, weights, tokenizer and a card, without this machine's paths.

        Args:
            language_model: what its language model is called elsewhere, such as its hub name; by default its name here,
                of a folder the last part.
            figures: measured values for the card, name -> value with its unit.

        Raises:
            UserError: there is something in the folder, or the run has no weights.
        """
        target = Path(folder).expanduser()
        refuse_full(target)
        config = portable(self.config, language_model)
        on_hub = is_hub_name(language_model or self.config.language_model)
        card = write_card(config, self.layer_config, on_hub, figures or {})
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(target) as partial:
            self.copy_to(partial, config)
            write_whole(partial / CARD_FILE, card)
        return target

    def push_to_hub(
        self,
        repository: str,
        language_model: str | None = None,
        figures: Mapping[str, str] | None = None,
        visibility: Literal["public", "private"] = "public",
    ) -> str:
        """Put what ``save_pretrained`` writes into a repository of the hub, in one commit.

        Returns:
            The address of the commit.

        Raises:
            UserError: the hub does not answer, or does not let us write.
        """
        with TemporaryDirectory() as place:
            folder = self.save_pretrained(Path(place) / "run", language_model, figures)
            return upload_folder(folder, repository, visibility == "private", f"Add {self.name}")

    def copy_to(self, folder: Path, config: TrainConfig) -> None:
        """Copy weights, units, metrics and tokenizer into a folder, with ``config`` as its settings."""
        weights = self.weights_folder
        copy_files([weights / CONFIG_FILE, weights / WEIGHTS_FILE], folder)
        copy_files([self.folder / UNITS_FILE, self.folder / METRICS_FILE], folder)
        copy_tokenizer(self.folder / TOKENIZER_FOLDER, folder / TOKENIZER_FOLDER)
        write_whole(folder / RUN_FILE, config.model_dump_json(indent=1) + "\n")

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
            return {int(expert): float(unit) for expert, unit in read_json(path).items()}
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
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
        from trainer.layers.registry import (
            load_layer,  # brings PyTorch, which takes seconds; most ask for less of a run
        )

        layer = load_layer(self.weights_folder)
        if layer.span != len(self.config.layers):
            raise UserError(
                f"{self.weights_folder / CONFIG_FILE} says that {layer.span} layers are written and {RUN_FILE} that "
                f"{len(self.config.layers)} are; restore them from a copy or fit the run again."
            )
        return layer

    def at_k(self, k: int | None) -> SparseLayer:
        """The layer with the k strongest experts of a token alone, on the same weights; where None, as it is.

        Raises:
            UserError: the layer has no such K, or none that can be chosen.
        """
        if k is None:
            return self.layer
        try:
            return self.layer.at_k(k)
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from error

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Of its language model."""
        return load_tokenizer(str(self.folder / TOKENIZER_FOLDER))

    def last_checkpoint(self) -> Path | None:
        """The newest whole checkpoint; half-written ones have other names and are never seen."""
        return next(iter(checkpoints(self.folder)), None)

    def resume_command(self) -> str:
        """What to type to go on fitting it."""
        return resume_command(self.name, self.config.began_as)


def resume_command(name: str, began_as: Sequence[str]) -> str:
    """What to type to go on fitting a run, by what its settings say that it began as."""
    if not began_as:
        return f"mxd train --name {name} --resume"
    pattern = name.replace(began_as[0], "{run}", 1)
    return f"mxd finetune {' '.join(began_as)} --name '{pattern}' --resume"


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run directory, newest first."""
    return sorted((path for path in folder.glob(f"{CHECKPOINT_PREFIX}*") if path.is_dir()), key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The steps that had been taken when it was written."""
    return int(checkpoint.name.removeprefix(CHECKPOINT_PREFIX))


def run_names(data: Path) -> list[str]:
    """Names of all runs of a data folder, sorted."""
    return sorted(path.parent.name for path in runs_folder(data).glob(f"*/{RUN_FILE}"))
