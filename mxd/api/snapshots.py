"""Snapshots in a notebook: an expert, the routing of a text, or a steered pair, as the dashboard shares them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from mxd.api.edits import Edits, parse_edits
from mxd.api.loading import opened_read_only, readable_databases, resolve_medians
from mxd.backend.export.snapshots import origin_of, route_command, steer_command
from mxd.trainer.analysis.expert import Expert
from mxd.trainer.config import SteeringConfig
from mxd.trainer.errors import NotFoundError
from mxd.trainer.inference.results import SteeredGeneration
from mxd.trainer.inference.routing import route
from mxd.trainer.inference.steering import steer
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.snapshot import Origin, Snapshot


def expert_snapshot(run: Run, expert: Expert, examples: int, database: str | None) -> Snapshot:
    """Snapshot of an expert; see ``Layer.show``."""
    command = ["mxd", "experts", run.name, str(expert.expert), "--examples", str(examples)]
    return expert.snapshot(_origin(run, (), command, {}, database))


def routing_snapshot(
    language_model: LanguageModel, run: Run, text: str, k: int | None, database: str | None
) -> Snapshot:
    """Snapshot of the routing of a text; see ``Layer.show``."""
    routing = route(language_model, run, text, k)
    experts = {each.expert for token in routing.tokens for each in token.experts}
    return routing.snapshot(_origin(run, experts, route_command(run.name, text, k), {}, database))


def steering_snapshot(
    language_model: LanguageModel,
    run: Run,
    prompt: str,
    edits: Edits,
    settings: Mapping[str, Any],
    database: str | None,
) -> Snapshot:
    """Snapshot of a steered pair; see ``Layer.show``."""
    parsed = resolve_medians(run, parse_edits(edits))
    config = SteeringConfig.from_keywords({"prompt": prompt, "edits": parsed}, settings)
    generation = SteeredGeneration.collect(run.name, prompt, steer(language_model, [run], config))
    experts = {edit.expert for edit in parsed if edit.run in (None, run.name)}
    seeds = {"sampling": config.sampling.seed}
    return generation.snapshot(parsed, _origin(run, experts, steer_command(run.name, config), seeds, database))


def _origin(
    run: Run, experts: Collection[int], command: Sequence[str], seeds: Mapping[str, int], database: str | None
) -> Origin:
    """Origin with the labels of the first database that has the run; without labels if none has it."""

    def make(session: Session | None) -> Origin:
        return origin_of(session, [run], {run.name: experts}, command, seeds)

    for url in readable_databases(run, database):
        try:
            with opened_read_only(url) as engine, Session(engine) as session:
                return make(session)
        except NotFoundError:
            continue
    return make(None)
