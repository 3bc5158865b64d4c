"""Whether the server is well, and what it holds."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter

from backend.database import reading, size_in_bytes
from backend.queries.runs import count_contexts
from backend.schemas import Health
from backend.services import ServicesDep

router = APIRouter(tags=["health"])


@router.get("/health")
def health(services: ServicesDep) -> Health:
    """Version, store and language models in memory."""
    with reading(services.store) as session:
        contexts = count_contexts(session)
    return Health(
        status="ok",
        version=version("mxd-explorer"),
        store_bytes=size_in_bytes(services.store),
        contexts=contexts,
        language_models=services.live.language_models(),
    )
