"""Runs and saved sessions as models, and requests to them as steering requests."""

from __future__ import annotations

from random import Random
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.database.steering_sessions import SessionRecord, all_sessions
from mxd.backend.errors import RunNotFoundError
from mxd.backend.queries.runs import aware
from mxd.backend.schemas.openai import (
    DEFAULT_TOKENS,
    ChatCompletionRequest,
    CompletionSettings,
    ModelInfo,
    ModelList,
    TextCompletionRequest,
)
from mxd.backend.schemas.steering import SteeringRequest
from mxd.trainer.config import Sampling
from mxd.trainer.language_model.chat_template import Turn
from mxd.trainer.storage.database.tables import RunRecord

SAMPLED = ("temperature", "top_p", "top_k", "repetition_penalty", "seed")
STEERED = ("edits", "mode", "scope", "k")


class ModelNotFoundError(RunNotFoundError):
    """There is no run and no saved session of this name."""

    code = "model_not_found"


def list_models(session: Session) -> ModelList:
    """All runs, then all saved sessions; a session whose name is taken appears under its id."""
    runs = session.scalars(select(RunRecord).order_by(RunRecord.started_at.desc(), RunRecord.id.desc()))
    models = [
        ModelInfo(id=run.name, created=int(aware(run.started_at).timestamp()), owned_by=run.language_model)
        for run in runs
    ]
    taken = {model.id for model in models}
    for record in all_sessions(session):
        name = record.id if record.name in taken else record.name
        taken.add(name)
        models.append(ModelInfo(id=name, created=int(record.saved_at_utc.timestamp()), owned_by=record.run))
    return ModelList(data=tuple(models))


def steering_request(
    session: Session, request: ChatCompletionRequest | TextCompletionRequest, chance: Random
) -> tuple[str, SteeringRequest]:
    """Return the run of a request's model, and the request as one to steer.

    Raises:
        ModelNotFoundError: there is no such model.
    """
    run, defaults = _model(session, request.model, chance)
    given = {name: value for name in STEERED if (value := getattr(request, name)) is not None}
    sampling = defaults.sampling.model_dump() | _sampling(request)
    settings = {**defaults.model_dump(exclude={"sampling", "prompt", "turns", "positions"}), **given}
    return run, SteeringRequest.model_validate({**settings, **_prompt(request), "sampling": sampling})


def _model(session: Session, name: str, chance: Random) -> tuple[str, SteeringRequest]:
    """Return the run of a model and the defaults of its requests."""
    if session.scalar(select(RunRecord.id).where(RunRecord.name == name)) is not None:
        seed = chance.randrange(2**53)
        sampling = Sampling(temperature=1, top_p=1, repetition_penalty=1, max_tokens=DEFAULT_TOKENS, seed=seed)
        return name, SteeringRequest(sampling=sampling)
    record = _session(session, name)
    return record.run, SteeringRequest.model_validate(record.steering)


def _session(session: Session, name: str) -> SessionRecord:
    """Return the session with this id, or the newest one with this name."""
    record = session.get(SessionRecord, name)
    named = select(SessionRecord).where(SessionRecord.name == name).order_by(SessionRecord.saved_at.desc())
    record = record or session.scalars(named).first()
    if record is None:
        raise ModelNotFoundError(
            f"Unknown model '{name}'. Use the name of a run or of a saved session; GET /v1/models lists them."
        )
    return record


def _sampling(request: CompletionSettings) -> dict[str, Any]:
    """Return the sampling settings that a request names."""
    given = {name: value for name in SAMPLED if (value := getattr(request, name)) is not None}
    tokens = getattr(request, "max_completion_tokens", None) or request.max_tokens
    stop = (request.stop,) if isinstance(request.stop, str) else request.stop
    more = {"max_tokens": tokens, "stop": stop, "samples": request.n or 1}
    return given | {name: value for name, value in more.items() if value is not None}


def _prompt(request: ChatCompletionRequest | TextCompletionRequest) -> dict[str, Any]:
    if isinstance(request, TextCompletionRequest):
        return {"prompt": request.prompt if isinstance(request.prompt, str) else request.prompt[0]}
    roles = {"developer": "system"}
    turns = [
        Turn.model_validate({"role": roles.get(message.role, message.role), "text": message.text})
        for message in request.messages
    ]
    return {"turns": tuple(turns)}
