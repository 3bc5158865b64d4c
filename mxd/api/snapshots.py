"""Snapshots in a notebook: an expert, the routing of a text, or a steered pair, as the dashboard shares them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from mxd.api.edits import Edits, parse_edits
from mxd.api.functions import generate, route
from mxd.api.layer import Layer
from mxd.api.loading import opened_read_only, readable_databases, resolve_medians
from mxd.backend.export.snapshots import origin_of, route_command, steer_command
from mxd.trainer.config import SteeringConfig
from mxd.trainer.errors import NotFoundError
from mxd.trainer.utils.snapshot import Origin, Snapshot


def expert_snapshot(layer: Layer, expert: int, examples: int, database: str | None) -> Snapshot:
    """Snapshot of an expert; see ``Layer.show``."""
    shown = layer.expert(expert, examples=examples, database=database)
    command = ["mxd", "experts", layer.name, str(expert), "--examples", str(examples)]
    return shown.snapshot(_origin(layer, {}, command, {}, database))


def routing_snapshot(layer: Layer, text: str, k: int | None, database: str | None, **model: Any) -> Snapshot:
    """Snapshot of the routing of a text; see ``Layer.show``."""
    routing = route(layer, text, k=k, **model)
    experts = {each.expert for token in routing.tokens for each in token.experts}
    return routing.snapshot(_origin(layer, {layer.name: experts}, route_command(layer.name, text, k), {}, database))


def steering_snapshot(
    layer: Layer, prompt: str, edits: Edits, database: str | None, settings: Mapping[str, Any], **model: Any
) -> Snapshot:
    """Snapshot of a steered pair; see ``Layer.show``."""
    generation = generate(layer, prompt, edits, **model, **settings)
    parsed = resolve_medians(layer.run, parse_edits(edits))
    config = SteeringConfig.from_keywords({"prompt": prompt, "edits": parsed}, dict(settings))
    experts = {layer.name: {edit.expert for edit in parsed if edit.run in (None, layer.name)}}
    seeds = {"sampling": config.sampling.seed}
    return generation.snapshot(parsed, _origin(layer, experts, steer_command(layer.name, config), seeds, database))


def _origin(
    layer: Layer,
    experts: Mapping[str, Collection[int]],
    command: Sequence[str],
    seeds: Mapping[str, int],
    database: str | None,
) -> Origin:
    """Origin with the labels of the first database that has the run; without labels if none has it."""

    def make(session: Session | None) -> Origin:
        return origin_of(session, [layer.run], experts, command, seeds)

    for url in readable_databases(layer.run, database):
        try:
            with opened_read_only(url) as engine, Session(engine) as session:
                return make(session)
        except NotFoundError:
            continue
    return make(None)
