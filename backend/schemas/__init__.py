"""What travels over HTTP: one frozen pydantic model a thing, in the vocabulary of the whole project.

The front end's types are generated from these (through ``openapi.json``), so a name changed here changes everywhere.
Units: coefficients are the gate's raw values, usage and shares are between 0 and 1, times are in seconds unless the
name says ``_ms``, losses and divergences are in nats.
"""

from __future__ import annotations

from backend.schemas.base import ErrorBody, ErrorResponse, Schema
from backend.schemas.experts import (
    Context,
    ContextPage,
    ExpertDetail,
    ExpertPage,
    ExpertRow,
    ExpertSort,
    Interval,
    LabelRequest,
    NoteRequest,
    Order,
    RandomExpert,
    SearchHit,
    SearchResult,
    SimilarExpert,
    SimilarExperts,
    TokenCount,
)
from backend.schemas.figures import Figure, FigureName
from backend.schemas.health import Health, LoadedLanguageModel
from backend.schemas.routing import (
    EffectsRequest,
    EffectsResponse,
    ExpertEffect,
    Prediction,
    RoutedExpert,
    RoutedExpertInfo,
    RoutedToken,
    RoutingRequest,
    RoutingResponse,
    TokenEffect,
)
from backend.schemas.runs import MetricPoint, RunDetail, RunList, RunStatus, RunSummary, StatusChange
from backend.schemas.steering import (
    Alternative,
    Arm,
    DoneEvent,
    ErrorEvent,
    ProgressEvent,
    StartEvent,
    SteeringEvent,
    SteeringRequest,
    TokenEvent,
)

__all__ = [
    "Alternative",
    "Arm",
    "Context",
    "ContextPage",
    "DoneEvent",
    "EffectsRequest",
    "EffectsResponse",
    "ErrorBody",
    "ErrorEvent",
    "ErrorResponse",
    "ExpertDetail",
    "ExpertEffect",
    "ExpertPage",
    "ExpertRow",
    "ExpertSort",
    "Figure",
    "FigureName",
    "Health",
    "Interval",
    "LabelRequest",
    "LoadedLanguageModel",
    "MetricPoint",
    "NoteRequest",
    "Order",
    "Prediction",
    "ProgressEvent",
    "RandomExpert",
    "RoutedExpert",
    "RoutedExpertInfo",
    "RoutedToken",
    "RoutingRequest",
    "RoutingResponse",
    "RunDetail",
    "RunList",
    "RunStatus",
    "RunSummary",
    "Schema",
    "SearchHit",
    "SearchResult",
    "SimilarExpert",
    "SimilarExperts",
    "StartEvent",
    "StatusChange",
    "SteeringEvent",
    "SteeringRequest",
    "TokenCount",
    "TokenEffect",
    "TokenEvent",
]
