"""Health and memory of the server."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter

from mxd.backend.api.dependencies import ServicesDep
from mxd.backend.database.engine import reading, size_in_bytes
from mxd.backend.queries.runs import count_examples
from mxd.backend.schemas.runs import Health

router = APIRouter(tags=["health"])


@router.get("/health")
def health(services: ServicesDep) -> Health:
    """Version, database, and language models in memory."""
    with reading(services.database) as session:
        contexts = count_examples(session)
    return Health(
        status="ok",
        version=version("mxd-explorer"),
        database_bytes=size_in_bytes(services.database),
        examples=contexts,
        language_models=services.live.language_models(),
    )
