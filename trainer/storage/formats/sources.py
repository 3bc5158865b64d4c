"""Sources of imported layers (a file, a folder, or a Hugging Face Hub repo), and selection of a layer in a source.

Files of a repo are downloaded on demand. Weights are read after the selection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import yaml

from mxd.trainer.config import ImportFormat
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.formats import circuit_tracer, saelens, sparsify
from mxd.trainer.storage.formats.base import ImportedLayer, SourceSettings, layer_of_module
from mxd.trainer.storage.formats.mxd_checkpoint import read_checkpoint
from mxd.trainer.utils.files import endpoint, first_line, is_unreachable, looks_like_path

MAX_FILES = 100_000
"""Maximum number of files in a folder of layers."""


class Source(Protocol):
    """A collection of files with relative names."""

    @property
    def name(self) -> str:
        """Name of the source."""
        ...

    @property
    def revision(self) -> str | None:
        """Commit of a repo."""
        ...

    def names(self) -> Sequence[str]:
        """Return the relative names of all files, with ``/`` between folders."""
        ...

    def fetch(self, name: str) -> Path:
        """Return a local path of a file."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder, or one file in it."""

    root: Path
    only: str | None = None
    """Name of the only file, if a file was chosen."""

    @property
    def name(self) -> str:
        """Absolute path."""
        return str((self.root / self.only if self.only else self.root).resolve())

    @property
    def revision(self) -> str | None:
        """None: folders have no revision."""
        return None

    def names(self) -> list[str]:
        """Return the chosen file, or all files below the folder."""
        if self.only is not None:
            return [self.only]
        names = []
        for path in self.root.rglob("*"):
            if path.is_file():
                names.append(path.relative_to(self.root).as_posix())
            if len(names) > MAX_FILES:
                raise UserError(
                    f"Too many files in {self.root}: more than {MAX_FILES:,}. Choose the folder of a layer."
                )
        return sorted(names)

    def fetch(self, name: str) -> Path:
        """Return the path of a file."""
        return self.root / name


@dataclass(frozen=True)
class Repository:
    """A Hugging Face Hub repo at one commit."""

    name: str
    revision: str
    files: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        """Return the names of all files."""
        return self.files

    def fetch(self, name: str) -> Path:
        """Download a file, unless it is cached, and return its path."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError

        try:
            return Path(hf_hub_download(self.name, name, revision=self.revision))
        except (OSError, ValueError, HfHubHTTPError) as error:
            raise UserError(
                f"Cannot download {name} of {self.name} from the Hugging Face Hub: {first_line(error)}."
            ) from error


def open_source(source: str) -> Source:
    """Open a file, a folder, or a Hugging Face Hub repo OWNER/NAME, optionally with @REVISION.

    Raises:
        NotFoundError: there is no such file, folder or repo.
        UserError: the Hub cannot be reached.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return Folder(path)
    if path.is_file():
        return Folder(path.parent, path.name)
    name, _, revision = source.partition("@")
    if looks_like_path(source) or name.count("/") != 1:
        raise NotFoundError(f"No such file or folder: {source}. Pass one, or a Hugging Face Hub repo as OWNER/NAME.")
    return _repository(name, revision or None)


def _repository(name: str, revision: str | None) -> Repository:
    from huggingface_hub import HfApi
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
    files = tuple(sorted(sibling.rfilename for sibling in info.siblings or ()))
    return Repository(name, info.sha or revision or "main", files)


MAX_CONFIG_BYTES = 1 << 20
"""Maximum size of a config file in bytes."""
MAX_LISTED = 12
_TRAINER_STATE = re.compile(r"^(optimizer|lr_scheduler|scheduler|state|rank|rng_state|training_args)\w*\.pt$")
"""Files that trainers write beside their layers, to resume."""
_LAYER_FILE = re.compile(r"^layer_(\d+)\.safetensors$")


@dataclass(frozen=True)
class CheckpointPart:
    """A layer in a source."""

    format: ImportFormat
    name: str
    """Folder or file within the source; empty for the source itself."""
    layer: int | None
    """Index of the block, if its name states it."""
    read: Callable[[], ImportedLayer]


def list_parts(source: Source) -> list[CheckpointPart]:
    """Return all layers in a source, identified by file names."""
    names = frozenset(source.names())
    return [part for name in sorted(names) for part in _parts(source, name, names)]


def _parts(source: Source, name: str, names: frozenset[str]) -> Iterator[CheckpointPart]:
    folder, _, file = name.rpartition("/")
    within = f"{folder}/" if folder else ""
    if file.endswith(".pt") and not _TRAINER_STATE.match(file):
        yield CheckpointPart("mxd-checkpoint", name, None, lambda: read_checkpoint(source.fetch(name)))
    elif file == sparsify.CONFIG and within + sparsify.WEIGHTS in names:
        hookpoint = folder or Path(source.name).name
        yield CheckpointPart(
            "sparsify", folder, layer_of_module(hookpoint), partial(_sparsify, source, within, hookpoint)
        )
    elif file == saelens.CONFIG and within + saelens.WEIGHTS in names:
        yield CheckpointPart("saelens", folder, None, partial(_saelens, source, within))
    elif file == circuit_tracer.CONFIG:
        beside = (other.removeprefix(within) for other in names if other.startswith(within))
        for layer in sorted(int(match[1]) for match in map(_LAYER_FILE.match, beside) if match):
            file = f"{within}layer_{layer}.safetensors"
            yield CheckpointPart("circuit-tracer", file, layer, partial(_circuit_tracer, source, within, file, layer))


def _sparsify(source: Source, within: str, hookpoint: str) -> ImportedLayer:
    settings = _settings(source.fetch(within + sparsify.CONFIG), json.loads)
    return sparsify.read_sparsify(settings, source.fetch(within + sparsify.WEIGHTS), hookpoint if within else "")


def _saelens(source: Source, within: str) -> ImportedLayer:
    settings = _settings(source.fetch(within + saelens.CONFIG), json.loads)
    return saelens.read_saelens(settings, source.fetch(within + saelens.WEIGHTS))


def _circuit_tracer(source: Source, within: str, file: str, layer: int) -> ImportedLayer:
    settings = _settings(source.fetch(within + circuit_tracer.CONFIG), _parse_yaml)
    circuit_tracer.check_set(settings)
    return circuit_tracer.read_circuit_tracer(settings, source.fetch(file), layer)


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without aliases: a few lines of them describe a value of any size."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Raise an error at an alias."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def _parse_yaml(text: str) -> Any:
    return yaml.load(text, _PlainLoader)


def _settings(path: Path, parse: Callable[[str], Any]) -> SourceSettings:
    """Read a config file.

    Raises:
        UserError: it is not a config.
    """
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise UserError(f"Config file too large: {path}. Choose the folder of a layer.")
    try:
        values = parse(path.read_text("utf-8"))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"Invalid config file: {path}. Download it again.") from error
    if not isinstance(values, dict):
        raise UserError(f"Invalid config file: {path} must be a mapping.")
    return SourceSettings(values, path.name)


def select_part(source: Source, layer: int | None, part: str | None) -> CheckpointPart:
    """Return the selected layer of a source.

    Raises:
        NotFoundError: there is no layer of a supported format, or not the selected one.
        UserError: the selection is ambiguous.
    """
    parts = list_parts(source)
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
    raise error(f"{source.name} {problem}. Choose one with --layer or --part: {_format_parts(parts)}.")


def _format_parts(parts: Sequence[CheckpointPart]) -> str:
    names = [part.name or "." for part in parts]
    return ", ".join(names[:MAX_LISTED]) + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")
