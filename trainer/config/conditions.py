"""Conditions on which an edit applies: gate activations, the part of the text, a stop text, and ramps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mxd.trainer.config.base import Config

Scope = Literal["all", "generated", "prompt"]
Level = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)] | Literal["median"]
"""Gate activation in units of the expert's 99th percentile, or the median over its active tokens."""
NumTokens = Annotated[int, Field(ge=1, le=4096)]


class GateTest(Config):
    """Test of one expert's gate activation on the edited token, before the edits of its layer."""

    expert: Annotated[int, Field(ge=0, lt=2**31)]
    """Id of the expert."""
    run: str | None = None
    """Name of the expert's run. Default: the run of the edited expert. Other runs must replace earlier layers."""
    above: Level | None = None
    """The test holds if the activation exceeds this level; 0 means active. In units of the expert's 99th percentile, or
    median."""
    at_most: Level | None = None
    """The test holds if the activation does not exceed this level; 0 means inactive. Give either above or at_most."""

    @model_validator(mode="after")
    def _check_one_level(self) -> GateTest:
        if (self.above is None) == (self.at_most is None):
            raise ValueError("a gate test needs either above or at_most")
        return self

    @property
    def level(self) -> float | Literal["median"]:
        """The level that the activation is compared with."""
        level = self.at_most if self.above is None else self.above
        assert level is not None
        return level


class Condition(Config):
    """Condition of an edit. All its parts must hold on a token."""

    gates: Annotated[tuple[GateTest, ...], Field(max_length=4)] = ()
    """Tests of gate activations, at most 4. Default: none."""
    scope: Scope = "all"
    """Tokens on which the edit applies: all, generated or prompt. Default: all."""
    first: NumTokens | None = None
    """The edit applies to the first so many generated tokens, and not to the prompt. Default: no limit."""
    until: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The edit stops applying on the token that completes this text in the generated text. Default: never."""
    ramp: NumTokens | None = None
    """The effect grows linearly over so many generated tokens: n/ramp on the n-th, none on the prompt. Default: full
    effect from the start."""
    fade: NumTokens | None = None
    """The effect shrinks linearly over so many generated tokens: 1 − (n−1)/fade on the n-th, full on the prompt.
    Default: no end."""

    @model_validator(mode="after")
    def _check_scope(self) -> Condition:
        if self.scope == "prompt" and (self.first, self.until, self.ramp, self.fade) != (None,) * 4:
            raise ValueError("first, until, ramp and fade count generated tokens, so scope cannot be prompt")
        return self
