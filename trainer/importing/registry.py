"""Which formats are known, and what a source holds of them. Nothing is read before one layer has been chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from trainer.config import ImportFormat
from trainer.errors import NotFoundError, UserError
from trainer.importing import circuit_tracer, saelens, sparsify
from trainer.importing.checkpoint import read_checkpoint
from trainer.importing.found import Found, Settings
from trainer.importing.hooks import layer_of_module
from trainer.importing.sources import Source

LARGEST_CONFIG = 1 << 20
"""Bytes of a config file."""
SHOWN = 12
_LAYER_FILE = re.compile(r"^layer_(\d+)\.safetensors$")


@dataclass(frozen=True)
class Part:
    """One layer of a source."""

    format: ImportFormat
    name: str
    """Its folder or file in the source; empty where that is the source itself."""
    layer: int | None
    """The block's number, where its name says so."""
    read: Callable[[], Found]


def parts_of(source: Source) -> list[Part]:
    """Every layer in a source, by the names of its files."""
    names = frozenset(source.names())
    return [part for name in sorted(names) for part in _parts(source, name, names)]


def _parts(source: Source, name: str, names: frozenset[str]) -> Iterator[Part]:
    folder, _, file = name.rpartition("/")
    within = f"{folder}/" if folder else ""
    if file.endswith(".pt"):
        yield Part("mxd-checkpoint", name, None, lambda: read_checkpoint(source.fetch(name)))
    elif file == sparsify.CONFIG and within + sparsify.WEIGHTS in names:
        hookpoint = folder or Path(source.name).name
        yield Part("sparsify", folder, layer_of_module(hookpoint), partial(_sparsify, source, within, hookpoint))
    elif file == saelens.CONFIG and within + saelens.WEIGHTS in names:
        yield Part("saelens", folder, None, partial(_saelens, source, within))
    elif file == circuit_tracer.CONFIG:
        beside = (other.removeprefix(within) for other in names if other.startswith(within))
        for layer in sorted(int(match[1]) for match in map(_LAYER_FILE.match, beside) if match):
            file = f"{within}layer_{layer}.safetensors"
            yield Part("circuit-tracer", file, layer, partial(_circuit_tracer, source, within, file, layer))


def _sparsify(source: Source, within: str, hookpoint: str) -> Found:
    settings = _settings(source.fetch(within + sparsify.CONFIG), json.loads)
    return sparsify.read_sparsify(settings, source.fetch(within + sparsify.WEIGHTS), hookpoint if within else "")


def _saelens(source: Source, within: str) -> Found:
    settings = _settings(source.fetch(within + saelens.CONFIG), json.loads)
    return saelens.read_saelens(settings, source.fetch(within + saelens.WEIGHTS))


def _circuit_tracer(source: Source, within: str, file: str, layer: int) -> Found:
    settings = _settings(source.fetch(within + circuit_tracer.CONFIG), yaml.safe_load)
    circuit_tracer.check_set(settings)
    return circuit_tracer.read_circuit_tracer(settings, source.fetch(file), layer)


def _settings(path: Path, parse: Callable[[str], Any]) -> Settings:
    """Names and values from a config file.

    Raises:
        UserError: it holds something else.
    """
    if path.stat().st_size > LARGEST_CONFIG:
        raise UserError(f"{path} is too large for a config; name the folder of a layer.")
    try:
        values = parse(path.read_text("utf-8"))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read as settings; fetch it again.") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold names and values.")
    return Settings(values, path.name)


def choose(source: Source, layer: int | None, part: str | None) -> Part:
    """The one layer of a source that is meant.

    Raises:
        NotFoundError: it holds none that is known, or not the one that was named.
        UserError: several may be meant.
    """
    found = parts_of(source)
    if not found:
        raise NotFoundError(
            f"{source.name} holds no layer of a known format: a .pt checkpoint of the paper's code, cfg.json with "
            "sae.safetensors (sparsify) or sae_weights.safetensors (SAELens), or config.yaml with layer_N.safetensors "
            "(circuit-tracer)."
        )
    meant = [one for one in found if part is None or one.name.strip("/") == part.strip("/")]
    if layer is not None and len(meant) > 1:
        meant = [one for one in meant if one.layer == layer]
    if len(meant) == 1:
        return meant[0]
    problem = "holds no such layer" if not meant else f"holds {len(meant)} layers"
    wrong = NotFoundError if not meant else UserError
    raise wrong(f"{source.name} {problem}; choose one with --layer or --part: {_listed(found)}.")


def _listed(parts: Sequence[Part]) -> str:
    names = [part.name or "." for part in parts]
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
