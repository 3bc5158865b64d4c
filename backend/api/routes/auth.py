"""Sign-in to the dashboard. Programs send their token with every request instead."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from mxd.backend.api.access import COOKIE, token_from
from mxd.backend.api.dependencies import ServicesDep
from mxd.backend.errors import NotSignedInError
from mxd.backend.schemas.runs import AccessInfo, SignInRequest

router = APIRouter(prefix="/access", tags=["access"])
SECONDS_SIGNED_IN = 30 * 24 * 3600


@router.get("")
async def access(request: Request, services: ServicesDep) -> AccessInfo:
    """The role of the client."""
    required = services.settings.requires_tokens
    role = await services.authenticator.role(token_from(request.headers)) if required else "write"
    return AccessInfo(tokens_required=required, role=role)


@router.post("")
async def sign_in(sent: SignInRequest, request: Request, response: Response, services: ServicesDep) -> AccessInfo:
    """Store a token in a cookie that scripts cannot read and other sites cannot send."""
    role = await services.authenticator.role(sent.token)
    if role is None:
        raise NotSignedInError("Unknown token. Check it for typing errors, or create another with: mxd token create")
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
    """Delete the cookie."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
