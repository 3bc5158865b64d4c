"""Signing in and out of the dashboard. Programs send their token with each request instead."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from backend.access.guard import COOKIE, client_address, token_of
from backend.errors import NotSignedInError
from backend.schemas import AccessInfo, SignInRequest
from backend.services import ServicesDep

router = APIRouter(prefix="/access", tags=["access"])
SECONDS_SIGNED_IN = 30 * 24 * 3600


@router.get("")
async def access(request: Request, services: ServicesDep) -> AccessInfo:
    """What the sender may do."""
    required = services.settings.requires_tokens
    role = await services.doorkeeper.role(token_of(request.headers)) if required else "write"
    return AccessInfo(tokens_required=required, role=role)


@router.post("")
async def sign_in(sent: SignInRequest, request: Request, response: Response, services: ServicesDep) -> AccessInfo:
    """Keep a token in a cookie that scripts cannot read and other sites cannot send."""
    services.doorkeeper.count_sign_in(client_address(request.scope))
    role = await services.doorkeeper.role(sent.token)
    if role is None:
        raise NotSignedInError("This token is not in use; check it for a typing error, or ask for another.")
    response.set_cookie(
        COOKIE,
        sent.token,
        max_age=SECONDS_SIGNED_IN,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return AccessInfo(tokens_required=services.settings.requires_tokens, role=role)


@router.delete("", status_code=204)
def sign_out(response: Response) -> None:
    """Forget the cookie."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
