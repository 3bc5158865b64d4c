"""Targets: the quantity whose dependence on experts is computed, by circuits and by the search by effect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mxd.trainer.config.base import Config, RunName

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class TokenTarget(Config):
    """Logit of a next token minus the mean over the vocabulary."""

    kind: Literal["token"] = "token"
    token: TokenId | None = None
    """Id of the token. Default: the most probable one."""


class DifferenceTarget(Config):
    """Logit of a next token minus that of another one."""

    kind: Literal["difference"] = "difference"
    token: TokenId
    """Id of the token."""
    other: TokenId
    """Id of the token to compare with."""


class SetTarget(Config):
    """Log-probability, in nats, that the next token is one of several."""

    kind: Literal["set"] = "set"
    tokens: Annotated[tuple[TokenId, ...], Field(min_length=1, max_length=1000)]
    """Ids of the tokens."""


class ContinuationTarget(Config):
    """Log-probability of a continuation of the prompt, in nats, summed over its tokens."""

    kind: Literal["continuation"] = "continuation"
    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    """The continuation, with its leading space."""


class ExpertTarget(Config):
    """Activation of an expert on the last token of the prompt."""

    kind: Literal["expert"] = "expert"
    run: RunName
    """Run of the expert."""
    expert: Annotated[int, Field(ge=0)]
    """Number of the expert."""


Target = Annotated[
    TokenTarget | DifferenceTarget | SetTarget | ContinuationTarget | ExpertTarget, Field(discriminator="kind")
]


def target_tokens(target: Target) -> tuple[int, ...]:
    """Ids of the next tokens that a target names."""
    match target:
        case TokenTarget(token=token):
            return () if token is None else (token,)
        case DifferenceTarget(token=token, other=other):
            return token, other
        case SetTarget(tokens=tokens):
            return tokens
        case _:
            return ()
