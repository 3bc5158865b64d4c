"""A run directory: one trained layer with everything needed to use it.

runs/NAME/run.json             training config
          layer.json           layer config
          layer.safetensors    weights, after training
          units.json           99th percentile of each expert's activation, after indexing
          prices.json          predicted price of each expert, after indexing
          metrics.json         training metrics
          tokenizer/           tokenizer of the language model
          checkpoint-STEP/     last complete checkpoint: weights, optimizer, position
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from jinja2 import Environment
from pydantic import Field, TypeAdapter

from mxd.trainer.config.base import SAMPLE
from mxd.trainer.config.layer import CONFIG_FILE, WEIGHTS_FILE, LayerConfig, Mixing, method_traits, read_layer_config
from mxd.trainer.config.training import Origin, TrainConfig, parse_train_config
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.tokenizer import load_tokenizer, with_start_token
from mxd.trainer.utils.display import unknown_run
from mxd.trainer.utils.files import (
    atomic_directory,
    atomic_write,
    disk_errors,
    explained,
    fetch_repository,
    is_locked,
    looks_like_path,
    read_json,
    upload_folder,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mxd.trainer.layers.mxd import SparseLayer

RUN_FILE = "run.json"
LOCK_FILE = ".fitting"
UNITS_FILE = "units.json"
PRICES_FILE = "prices.json"
METRICS_FILE = "metrics.json"
CARD_FILE = "README.md"
TOKENIZER_FOLDER = "tokenizer"
CHECKPOINT_PREFIX = "checkpoint-"
SHARED_FILES = (CONFIG_FILE, WEIGHTS_FILE, UNITS_FILE, PRICES_FILE, METRICS_FILE)
"""Files that are published besides config and tokenizer."""

ROUNDING = 1e-4
"""Relative difference of units that counts as rounding."""

_NUMBERS = TypeAdapter(dict[Annotated[int, Field(ge=0)], Annotated[float, Field(ge=0, le=1e30)]])


def runs_folder(data: Path) -> Path:
    return data / "runs"


@dataclass(frozen=True)
class Run:
    """A run directory and its config. Weights and tokenizer are loaded lazily."""

    folder: Path
    config: TrainConfig

    @classmethod
    def load(cls, name: str | Path, data: Path = Path("data")) -> Run:
        """Load a run by its folder, or by its name in ``data`` or in the demo. Raises NotFoundError (there is no such
        run) or UserError (its config is damaged)."""
        candidates = [Path(name), runs_folder(data) / name, runs_folder(SAMPLE) / name]
        folder = next((path for path in candidates if (path / RUN_FILE).is_file()), None)
        if folder is None:
            raise NotFoundError(unknown_run(str(name), run_names(data)))
        path = folder / RUN_FILE
        with explained(f"Invalid config: {path}. Restore it from a backup, or train the run again.", ValueError):
            return cls(folder, parse_train_config(read_json(path)))

    @classmethod
    def create(cls, config: TrainConfig, data: Path, tokenizer: PreTrainedTokenizerBase) -> Run:
        """Create the directory of a new run. The config is written last: a folder without it is not a run."""
        folder = runs_folder(data) / config.name
        folder.mkdir(parents=True, exist_ok=True)
        config = config.model_copy(update={"text": with_start_token(config.text, tokenizer)})
        tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)
        atomic_write(folder / RUN_FILE, config.model_dump_json(indent=1) + "\n")
        return cls(folder, config)

    @classmethod
    def from_pretrained(cls, source: str | Path, revision: str | None = None) -> Run:
        """Load a run from a folder or a Hugging Face Hub repo (OWNER/NAME).

        Raises:
            NotFoundError: there is no such folder or repo, or no run in it.
            UserError: the Hub cannot be reached, the config is damaged, a folder has links to other folders, or a
                revision of a folder is requested.
        """
        folder = Path(source).expanduser()
        if folder.is_dir():
            if revision is not None:
                raise UserError(f"{source} is a folder here, which has no revisions. Leave out --revision.")
            check_no_links(folder)
            return cls.load(folder)
        if looks_like_path(str(source)):
            raise NotFoundError(f"No such folder: {source}. Pass a folder, or a Hugging Face Hub repo as OWNER/NAME.")
        patterns = [*SHARED_FILES, RUN_FILE, *(f"{TOKENIZER_FOLDER}/{pattern}" for pattern in TOKENIZER_FILES)]
        return cls.load(fetch_repository(str(source), revision, patterns))

    def save_pretrained(
        self,
        folder: str | Path,
        language_model: str | None = None,
        figures: Mapping[str, str] | None = None,
        changed: SparseLayer | None = None,
    ) -> Path:
        """Write the run to a new folder: config without local paths, weights, tokenizer and model card.

        Args:
            language_model: public name of the language model, such as its Hub name. Default: the name in the config, or
                the last component of a local path.
            figures: measured values for the model card, name -> value with unit.
            changed: layer to write instead of the run's own, such as a fine-tuned one. The copy gets the folder's name,
                because records of the run do not belong to it, and has no metrics of training.

        Raises:
            UserError: the folder is not empty, or the run has no weights.
        """
        target = Path(folder).expanduser()
        check_empty_folder(target)
        config = portable(self.config, language_model)
        if changed is not None:
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", target.resolve().name).lstrip("._-")[:100] or self.name
            config = config.model_copy(update={"k": changed.config.k, "name": name})
        on_hub = is_hub_name(language_model or self.config.language_model)
        card = write_card(config, self.layer_config if changed is None else changed.config, on_hub, figures or {})
        with atomic_directory(target) as partial:
            self.copy_to(partial, config)
            if changed is not None:
                changed.save(partial)
                (partial / METRICS_FILE).unlink(missing_ok=True)
            atomic_write(partial / CARD_FILE, card)
        return target

    def push_to_hub(
        self,
        repository: str,
        language_model: str | None = None,
        figures: Mapping[str, str] | None = None,
        visibility: Literal["public", "private"] = "public",
    ) -> str:
        """Upload the files of ``save_pretrained`` to a Hugging Face Hub repo in one commit.

        Returns:
            URL of the commit.

        Raises:
            UserError: the Hub cannot be reached, or denies access.
        """
        with TemporaryDirectory() as temporary:
            folder = self.save_pretrained(Path(temporary) / "run", language_model, figures)
            return upload_folder(folder, repository, visibility == "private", f"Add {self.name}")

    def copy_to(self, folder: Path, config: TrainConfig) -> None:
        """Copy weights, units, metrics and tokenizer to a folder, and write ``config``."""
        weights = self.weights_folder
        if (weights / WEIGHTS_FILE).is_file():
            copy_files([weights / CONFIG_FILE, weights / WEIGHTS_FILE], folder)
        else:  # a checkpoint in parts
            self.layer.save(folder)
        copy_files([self.folder / name for name in (UNITS_FILE, PRICES_FILE, METRICS_FILE)], folder)
        copy_tokenizer(self.folder / TOKENIZER_FOLDER, folder / TOKENIZER_FOLDER)
        atomic_write(folder / RUN_FILE, config.model_dump_json(indent=1) + "\n")

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def language_model_source(self) -> str:
        """Hub name or absolute folder of the language model. A relative folder may also start at the data folder, so
        that both can be moved together."""
        named = Path(self.config.language_model)
        for folder in (self.folder.parent.parent / named, named):
            if folder.exists():
                return str(folder.resolve())
        return self.config.language_model

    @cached_property
    def units(self) -> Mapping[int, float]:
        """Expert -> 99th percentile of its activation, the unit of edits. Empty if the run is not indexed. Raises
        UserError if the file is damaged."""
        return self._numbers(UNITS_FILE)

    @cached_property
    def prices(self) -> Mapping[int, float]:
        """Expert -> predicted price of a gate activation of 1, in nats per token. Empty if it was not computed. Raises
        UserError if the file is damaged."""
        return self._numbers(PRICES_FILE)

    def _numbers(self, file: str) -> Mapping[int, float]:
        path = self.folder / file
        if not path.is_file():
            return {}
        with explained(f"Invalid {path.stem}: {path}. Delete the file, or index the run again.", ValueError):
            return _NUMBERS.validate_json(path.read_bytes())

    def write_prices(self, prices: Sequence[float] | None) -> None:
        """Store the predicted price of every expert with the weights, in four digits. None removes earlier ones."""
        path = self.folder / PRICES_FILE
        if prices is None:
            path.unlink(missing_ok=True)
        else:
            rounded = {str(expert): float(f"{price:.4g}") for expert, price in enumerate(prices)}
            atomic_write(path, json.dumps(rounded) + "\n")
        self.__dict__.pop("prices", None)

    def write_units(self, units: Mapping[int, float]) -> None:
        """Store the units with the weights, so that a strength means the same wherever the run is used. Stored units
        that differ only by rounding, as from another machine, are kept."""
        with suppress(UserError):  # damaged units are written again
            stored = self.units
            if stored.keys() == units.keys() and all(
                math.isclose(stored[expert], unit, rel_tol=ROUNDING) for expert, unit in units.items()
            ):
                return
        atomic_write(self.folder / UNITS_FILE, json.dumps({str(expert): unit for expert, unit in units.items()}) + "\n")
        self.__dict__.pop("units", None)

    @property
    def lock(self) -> Path:
        return self.folder / LOCK_FILE

    @property
    def is_training(self) -> bool:
        return is_locked(self.lock)

    @property
    def weights_folder(self) -> Path:
        """Folder of the trained layer, or of the last checkpoint. Raises NotFoundError if there is neither."""
        if (self.folder / WEIGHTS_FILE).is_file():
            return self.folder
        complete = checkpoints(self.folder)
        if not complete:
            raise NotFoundError(f"Run '{self.name}' has no weights yet. Run '{self.resume_command()}'.")
        return complete[0]

    @cached_property
    def layer_config(self) -> LayerConfig:
        return read_layer_config(self.weights_folder)

    @cached_property
    def layer(self) -> SparseLayer:
        from mxd.trainer.layers.variants import load_layer

        return load_layer(self.weights_folder)

    def at_k(self, k: int | None) -> SparseLayer:
        """Return the layer with only the k strongest experts per token, sharing its weights; None keeps the layer's K.
        Raises UserError if k exceeds the layer's K, or the method has no top-k."""
        if k is None:
            return self.layer
        try:
            return self.layer.at_k(k)
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from error

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Tokenizer of the language model; a run without its own copy takes it from there."""
        folder = self.folder / TOKENIZER_FOLDER
        return load_tokenizer(str(folder) if folder.is_dir() else self.language_model_source)

    def resume_command(self) -> str:
        return resume_command(self.name, self.config.parents)


def resume_command(name: str, parents: Sequence[str]) -> str:
    if not parents:
        return f"mxd train --name {name} --resume"
    pattern = name.replace(parents[0], "{run}", 1)
    return f'mxd finetune {" ".join(parents)} --name "{pattern}" --resume'


def checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a run directory, newest first; incomplete ones have other names."""
    return sorted((path for path in folder.glob(f"{CHECKPOINT_PREFIX}*") if path.is_dir()), key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """Return the number of steps taken at a checkpoint."""
    return int(checkpoint.name.removeprefix(CHECKPOINT_PREFIX))


def run_names(data: Path) -> list[str]:
    return sorted(path.parent.name for path in runs_folder(data).glob(f"*/{RUN_FILE}"))


MIXINGS: Mapping[Mixing, str] = {
    "paper": "a C, the paper's exact form; it can become constant, so check the routing share",
    "centred": "a C minus its median over the training tokens, which excludes a constant mixing",
}
WITH_CONSTANT = "a C plus a learned constant, which may replace the routing, so check the routing share"
"""Mixing of an MxD that mixes hidden units and is not centred."""


def write_card(config: TrainConfig, layer: LayerConfig, is_on_hub: bool, figures: Mapping[str, str]) -> str:
    """Return the model card as Markdown with the Hub's metadata header. ``figures`` are measured values, name -> value
    with unit. The language model is linked if it ``is_on_hub``."""
    facts = {
        "language model": config.language_model,
        "layer": str(config.layer),
        "method": config.method,
        "experts N": f"{layer.num_experts:,}",
        "active K": f"{layer.k:,}" if layer.min_k is None else f"{layer.min_k:,} to {layer.k:,}",
    }
    traits = method_traits(layer.method)
    if layer.method.endswith("mxd"):
        with_constant = traits.mixes_hidden and layer.mixing == "paper"
        facts["mixing"] = WITH_CONSTANT if with_constant else MIXINGS[layer.mixing]
        facts["hidden width H"] = f"{layer.hidden_width:,}"
        if not traits.mixes_hidden:
            facts["activation"] = f"{layer.activation} ({layer.encoder})"
    facts |= {
        "training tokens": f"{config.tokens:,}" if config.tokens else "not stated",
        "dataset": config.text.dataset,
        "context length": f"{config.text.context_length} tokens",
    }
    if (origin := config.origin) is None:
        facts |= {"learning rate": f"{config.optimizer.learning_rate:g}", "seed": str(config.seed)}
    else:
        facts["imported from"] = f"{origin.format}: {origin.source} {origin.part}".strip()
        facts["SHA-256"] = origin.sha256

    template = Environment(trim_blocks=True, keep_trailing_newline=True).from_string(
        (Path(__file__).parent / "card.md").read_text("utf-8")
    )
    return template.render(
        config=config,
        summary=method_traits(config.method).summary,
        facts=facts,
        figures=figures,
        is_on_hub=is_on_hub,
        named=config.language_model if is_on_hub else f"FOLDER/{config.language_model}",
    )


TOKENIZER_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
"""Tokenizer files to copy. None of them is code or a pickle."""


def portable(config: TrainConfig, language_model: str | None) -> TrainConfig:
    """Return the config without local paths, of which only the last component is kept, and with the public name of the
    language model if one is given."""
    origin = config.origin
    return config.model_copy(
        update={
            "language_model": language_model or without_folder(config.language_model),
            "text": config.text.model_copy(update={"dataset": without_folder(config.text.dataset)}),
            "origin": origin and Origin.model_validate(origin.model_dump() | {"source": without_folder(origin.source)}),
        }
    )


def is_hub_name(source: str) -> bool:
    """Return whether a language model is a Hugging Face Hub name rather than a local folder."""
    return not Path(source).expanduser().exists() and source.count("/") <= 1 and not source.startswith((".", "/", "~"))


def without_folder(source: str) -> str:
    """Return a Hub name as it is, and of a local path only its last component."""
    return source if is_hub_name(source) else Path(source).expanduser().resolve().name


def check_empty_folder(folder: Path) -> None:
    """Check that a target folder is new or empty. Raises UserError if it is not."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"The target folder is not empty: {folder}. Choose a new one.")


def check_no_links(folder: Path) -> None:
    """Check that a stranger's folder links to no other: the target, which may be private, would be copied. The Hub's
    cache links from its snapshots to its own ``blobs``. Raises UserError if it does."""
    root = folder.resolve()
    inside = (root, *([root.parent.parent / "blobs"] if root.parent.name == "snapshots" else []))
    for path in sorted(root.rglob("*")):
        if path.is_symlink() and not any(path.resolve().is_relative_to(place) for place in inside):
            raise UserError(f"{path} links to another folder. Replace the link with the file, if you trust the folder.")


def copy_files(paths: Iterable[Path], target: Path) -> None:
    with disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.is_file():
                shutil.copyfile(path, target / path.name)


def copy_tokenizer(source: Path, target: Path) -> None:
    copy_files(sorted(path for pattern in TOKENIZER_FILES for path in source.glob(pattern)), target)
