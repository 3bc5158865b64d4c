"""Supported formats, and selection of a layer in a source. Weights are read after the selection."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from mxd.trainer.config import ImportFormat
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.importers import circuit_tracer, saelens, sparsify
from mxd.trainer.storage.importers.base import ImportedLayer, SourceSettings
from mxd.trainer.storage.importers.hook_names import layer_of_module
from mxd.trainer.storage.importers.mxd_checkpoint import read_checkpoint
from mxd.trainer.storage.importers.sources import Source

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
