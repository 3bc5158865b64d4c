"""Snapshots of what a page shows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.routing import CircuitFileRequest, CircuitRequest, RoutingRequest
from mxd.backend.schemas.steering import ShowcaseToken, SteeringRequest
from mxd.trainer.analysis.results import TokenEffect


class ExpertSnapshot(Schema):
    """An expert with its strongest examples."""

    kind: Literal["expert"]
    expert: Annotated[int, Field(ge=0)]
    promoted: Annotated[tuple[TokenEffect, ...], Field(max_length=64)] = ()
    """Next tokens that it promotes, as the page shows them. Default: those measured by 'mxd ablate'."""
    suppressed: Annotated[tuple[TokenEffect, ...], Field(max_length=64)] = ()


class RoutingSnapshot(RoutingRequest):
    """A heat map of a text."""

    kind: Literal["routing"]
    experts: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=64)] = ()
    """Rows, in the order of the page. Default: the experts with the largest shares."""


Texts = Annotated[tuple[tuple[ShowcaseToken, ...], ...], Field(min_length=1, max_length=16)]


class SteeringSnapshot(Schema):
    """Texts that the page has generated."""

    kind: Literal["steering"]
    request: SteeringRequest
    """Settings of the generation."""
    baseline: Texts
    """Tokens of each sample."""
    steered: Texts


class CircuitSnapshot(CircuitFileRequest):
    """A circuit that the page has traced."""

    kind: Literal["circuit"]
    request: CircuitRequest
    """Settings of the trace."""


SnapshotRequest = Annotated[
    ExpertSnapshot | RoutingSnapshot | SteeringSnapshot | CircuitSnapshot, Field(discriminator="kind")
]


class SnapshotFiles(Schema):
    """A snapshot in two formats."""

    title: str
    html: str
    """A page that needs no network and has no script."""
    markdown: str
