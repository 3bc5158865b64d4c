"""Sources of imported layers (a file, a folder, or a Hugging Face Hub repo), and selection of a layer in a source.

Layers are identified by file names. Files of a repo are downloaded on demand, and weights are read after the selection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from mxd.trainer.config import ImportFormat
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.formats.base import ImportedLayer, SourceSettings, layer_of_module
from mxd.trainer.storage.formats.mxd_checkpoint import read_checkpoint
from mxd.trainer.storage.formats.transcoders import (
    CONFIG,
    SAELENS_WEIGHTS,
    SET_CONFIG,
    SPARSIFY_WEIGHTS,
    read_circuit_tracer,
    read_saelens,
    read_sparsify,
)
from mxd.trainer.utils.files import endpoint, explained, first_line, is_unreachable, looks_like_path

MAX_FILES = 100_000
MAX_CONFIG_BYTES = 1 << 20
MAX_LISTED = 12
_TRAINER_STATE = re.compile(r"^(optimizer|lr_scheduler|scheduler|state|rank|rng_state|training_args)\w*\.pt$")
"""Files that trainers write beside their layers, to resume."""
_LAYER_FILE = re.compile(r"^layer_(\d+)\.safetensors$")


@dataclass(frozen=True)
class Source:
    name: str
    """Absolute path, or name of a repo."""
    revision: str | None
    files: tuple[str, ...]
    """Relative names, with ``/`` between folders."""
    fetch: Callable[[str], Path]
    """Returns the local path of a file, which it may download."""


def open_source(source: str) -> Source:
    """Open a file, a folder, or a Hugging Face Hub repo OWNER/NAME, optionally with @REVISION. Raises NotFoundError
    (there is no such file, folder or repo) or UserError (the Hub cannot be reached, or the folder has too many
    files)."""
    path = Path(source).expanduser()
    if path.is_file():
        return Source(str(path.resolve()), None, (path.name,), path.parent.joinpath)
    if path.is_dir():
        names: list[str] = []
        for file in path.rglob("*"):
            if file.is_file():
                names.append(file.relative_to(path).as_posix())
            if len(names) > MAX_FILES:
                raise UserError(f"Too many files in {path}: more than {MAX_FILES:,}. Choose the folder of a layer.")
        return Source(str(path.resolve()), None, tuple(names), path.joinpath)
    name, _, revision = source.partition("@")
    if looks_like_path(source) or name.count("/") != 1:
        raise NotFoundError(f"No such file or folder: {source}. Pass one, or a Hugging Face Hub repo as OWNER/NAME.")
    return _repository(name, revision or None)


def _repository(name: str, revision: str | None) -> Source:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    if is_unreachable():
        raise UserError(
            f"No such file or folder: {name}. The Hugging Face Hub ({endpoint()}) does not respond; check the network."
        )
    try:
        info = HfApi().model_info(name, revision=revision)
    except RepositoryNotFoundError as error:
        raise NotFoundError(f"No such file, folder or Hugging Face Hub repo: {name}.") from error
    except (OSError, HFValidationError, HfHubHTTPError) as error:
        raise UserError(f"Cannot read {name} from the Hugging Face Hub: {first_line(error)}.") from error
    commit = info.sha or revision or "main"

    def download(file: str) -> Path:
        try:
            return Path(hf_hub_download(name, file, revision=commit))
        except (OSError, ValueError, HfHubHTTPError) as error:
            raise UserError(
                f"Cannot download {file} of {name} from the Hugging Face Hub: {first_line(error)}."
            ) from error

    return Source(name, commit, tuple(sibling.rfilename for sibling in info.siblings or ()), download)


@dataclass(frozen=True)
class CheckpointPart:
    format: ImportFormat
    name: str
    """Folder or file within the source; empty for the source itself."""
    layer: int | None
    """Index of the block, if its name states it."""
    read: Callable[[], ImportedLayer]


def _parts(source: Source, name: str) -> Iterator[CheckpointPart]:
    """Layers that a file of a source describes: a checkpoint, or a config beside its weights."""
    folder, _, file = name.rpartition("/")
    within = f"{folder}/" if folder else ""

    def reads(read: Callable[[SourceSettings, Path], ImportedLayer], weights: str) -> Callable[[], ImportedLayer]:
        return lambda: read(_settings(source.fetch(name)), source.fetch(weights))

    if file.endswith(".pt") and not _TRAINER_STATE.match(file):
        yield CheckpointPart("mxd-checkpoint", name, None, lambda: read_checkpoint(source.fetch(name)))
    elif file == CONFIG and (weights := within + SPARSIFY_WEIGHTS) in source.files:
        layer = layer_of_module(folder or Path(source.name).name)
        yield CheckpointPart("sparsify", folder, layer, reads(partial(read_sparsify, part=folder), weights))
    elif file == CONFIG and (weights := within + SAELENS_WEIGHTS) in source.files:
        yield CheckpointPart("saelens", folder, None, reads(read_saelens, weights))
    elif file == SET_CONFIG:
        beside = (other.removeprefix(within) for other in source.files if other.startswith(within))
        for layer in sorted(int(match[1]) for match in map(_LAYER_FILE.match, beside) if match):
            weights = f"{within}layer_{layer}.safetensors"
            read = reads(partial(read_circuit_tracer, layer=layer), weights)
            yield CheckpointPart("circuit-tracer", weights, layer, read)


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without aliases: a few lines of them describe a value of any size."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def _settings(path: Path) -> SourceSettings:
    """Read a config file, YAML or JSON."""
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise UserError(f"Config file too large: {path}. Choose the folder of a layer.")
    with explained(f"Invalid config file: {path}. Download it again.", ValueError, RecursionError, yaml.YAMLError):
        text = path.read_text("utf-8")
        values: Any = yaml.load(text, _PlainLoader) if path.suffix == ".yaml" else json.loads(text)
    if not isinstance(values, dict):
        raise UserError(f"Invalid config file: {path} must be a mapping.")
    return SourceSettings(values, path.name)


def select_part(source: Source, layer: int | None, part: str | None) -> CheckpointPart:
    """Return the selected layer of a source. Raises NotFoundError (there is no layer of a supported format, or not the
    selected one) or UserError (the selection is ambiguous)."""
    parts = [found for name in sorted(source.files) for found in _parts(source, name)]
    if not parts:
        raise NotFoundError(
            f"{source.name} has no layer in a supported format: a .pt checkpoint of the paper's code, cfg.json with "
            "sae.safetensors (sparsify) or sae_weights.safetensors (SAELens), or config.yaml with layer_N.safetensors "
            "(circuit-tracer)."
        )
    matches = [one for one in parts if part is None or one.name.strip("/") == part.strip("/")]
    if layer is not None and len(matches) > 1:
        matches = [one for one in matches if one.layer == layer]
    if len(matches) == 1:
        return matches[0]
    problem = "has no such layer" if not matches else f"has {len(matches)} layers"
    error = NotFoundError if not matches else UserError
    names = ", ".join(one.name or "." for one in parts[:MAX_LISTED])
    more = f" and {len(parts) - MAX_LISTED} more" if len(parts) > MAX_LISTED else ""
    raise error(f"{source.name} {problem}. Choose one with --layer or --part: {names}{more}.")
