"""Settings of steering and generation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mxd.trainer.config.base import Config, Size
from mxd.trainer.config.conditions import Condition, Scope
from mxd.trainer.config.edit_text import format_edit, parse_edit

EditMode = Literal["scale", "add", "set", "ablate"]
SteeringMode = Literal["residual", "replace"]
Strength = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]
"""Strength of an edit."""


class Edit(Config):
    """Change to the gate activation of one expert. Also accepted as compact text, such as ``12:add:4@first:20``."""

    expert: Annotated[int, Field(ge=0, lt=2**31)]
    """Id of the expert."""
    mode: EditMode
    """Kind of change. scale: multiply the gate activation. add: add to it. set: replace it. ablate: set it to 0."""
    strength: Strength = 1.0
    """Strength, −1000 to 1000. For scale, the factor; for add and set, in units of the expert's 99th-percentile gate
    activation. Not used by ablate. Default: 1."""
    run: str | None = None
    """Name of the expert's run. Default: the steered run. Other runs must replace other layers."""
    when: Condition | None = None
    """Condition on which the edit applies. Default: always."""

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs that the edit and its gate tests name."""
        tested = [test.run for test in self.when.gates] if self.when else []
        return tuple(name for name in (self.run, *tested) if name is not None)

    def experts(self, steered: str) -> tuple[tuple[str, int], ...]:
        """Run and id of the edited expert and of each tested one, if ``steered`` is the steered run."""
        own = self.run or steered
        tested = [(test.run or own, test.expert) for test in self.when.gates] if self.when else []
        return ((own, self.expert), *tested)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return parse_edit(value) if isinstance(value, str) else value

    def __str__(self) -> str:
        """The edit as compact text."""
        return format_edit(self.model_dump())


class Sampling(Config):
    """Sampling of the next token. Baseline and steered text share the random numbers, so only the edits differ."""

    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """Maximum number of new tokens, 1 to 4,096. Default: 64."""
    temperature: Annotated[float, Field(ge=0, le=5)] = 0.7
    """Sampling temperature, 0 to 5; 0 is greedy decoding. Default: 0.7."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Nucleus (top-p) sampling threshold. Default: 0.95."""
    top_k: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Top-k sampling: number of most probable tokens to sample from; 0 is all. Default: 0."""
    repetition_penalty: Annotated[float, Field(ge=0.5, le=3)] = 1.1
    """Repetition penalty, 0.5 to 3; values above 1 discourage repeated tokens. Default: 1.1."""
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """Random seed of the samples. Default: 0."""
    stop: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Stop sequences, at most 8. Default: none."""
    samples: Annotated[int, Field(ge=1, le=16)] = 1
    """Number of samples per variant, 1 to 16; sample n uses the seed plus n. Default: 1."""


class SteeringConfig(Config):
    """Prompt, edits and sampling settings of a steered generation."""

    prompt: Annotated[str, Field(max_length=200_000)]
    """Text to continue."""
    edits: Annotated[tuple[Edit, ...], Field(max_length=64)] = ()
    """Edits to apply, at most 64. Default: none."""
    mode: SteeringMode = "residual"
    """How edits are applied. residual: add the difference that the edits make to the original MLP's output. replace:
    replace the MLP by the run's layer. Default: residual."""
    scope: Scope = "all"
    """Tokens that the edits change: all, generated or prompt. Default: all."""
    positions: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Prompt positions that the edits change, whatever the scope; 0 is the start token. Default: as the scope says."""
    k: Size | None = None
    """Number of active experts per token, at most the run's K. Default: the run's K."""
    sampling: Sampling = Sampling()
    """Sampling settings."""

    def experts(self, steered: str) -> tuple[tuple[str, int], ...]:
        """Run and id of each edited or tested expert, if ``steered`` is the steered run."""
        return tuple(expert for edit in self.edits for expert in edit.experts(steered))


class DoseConfig(SteeringConfig):
    """Strength sweep: the same prompt with one edit at several strengths."""

    edit: Annotated[int, Field(ge=0)] = 0
    """Index of the edit to vary, from 0; its own strength is not used. Default: 0."""
    strengths: Annotated[tuple[Strength, ...], Field(min_length=1, max_length=12)] = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
    """Strengths to test, at most 12. Default: 0,1,2,3,4,6,8."""
    control: Annotated[int, Field(ge=0)] | None = None
    """Expert that serves as control: edited instead, at the same strengths. Default: a random one of similar
    density."""
    sampling: Sampling = Sampling(max_tokens=24, samples=4)
    """Sampling settings. Default: 4 samples of 24 tokens."""

    def experts(self, steered: str) -> tuple[tuple[str, int], ...]:
        """Run and id of each edited or tested expert and of the control, if ``steered`` is the steered run."""
        known = super().experts(steered)
        if self.control is None or self.edit >= len(self.edits):
            return known
        return (*known, (self.edits[self.edit].run or steered, self.control))
