"""Settings of steering and generation, and the compact text of edits: ``[RUN/]EXPERT:MODE[:STRENGTH]`` and any clauses,
which docs/steering.md explains. ``parse_edit`` and ``format_edit`` are inverse to each other.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mxd.trainer.config.base import Config, Size

EDIT_FORMATS = "EXPERT:scale:FACTOR, EXPERT:add:UNITS, EXPERT:set:UNITS or EXPERT:ablate"
CLAUSES = "@when:EXPERT>UNITS, @when:EXPERT<=median, @prompt, @generated, @first:N, @ramp:N, @fade:N and @until:TEXT"
_CLAUSE = re.compile(r'@(?:until:(?P<quoted>"(?:[^"\\]|\\.)*")|until:(?P<rest>.*)|(?P<word>[^@]*))', re.DOTALL)
_TEST = re.compile(r"(?:(?P<run>.+)/)?(?P<expert>\d+)(?P<sign>>|<=)(?P<level>.+)", re.DOTALL)
_COUNTED = ("first", "ramp", "fade")


def parse_edit(text: str) -> dict[str, Any]:
    """Return the fields of an edit, unvalidated. Raises ValueError if the text is not an edit."""
    head, at, clauses = text.partition("@")
    run, _, edit = head.rpartition("/")
    expert, _, rest = edit.partition(":")
    mode, separator, strength = rest.partition(":")
    if not expert or not mode:
        raise ValueError(f"Invalid edit: '{text}'. Write {EDIT_FORMATS}, then clauses such as {CLAUSES}.")
    fields: dict[str, Any] = {"expert": expert, "mode": mode, "run": run or None}
    if separator:
        fields["strength"] = strength
    return fields | ({"when": _condition(at + clauses)} if at else {})


def _condition(text: str) -> dict[str, Any]:
    condition: dict[str, Any] = {}
    place = 0
    while place < len(text):
        match = _CLAUSE.match(text, place)
        if match is None:
            raise ValueError(f"Invalid clause: '{text[place:]}'. Write clauses such as {CLAUSES}.")
        place = match.end()
        name, value = _clause(match)
        if name == "gates":
            condition.setdefault("gates", []).append(value)
        elif name in condition:
            raise ValueError(f"The clause {name} appears twice in '{text}'. Write it once.")
        else:
            condition[name] = value
    return condition


def _clause(match: re.Match[str]) -> tuple[str, Any]:
    if match["quoted"] is not None:
        return "until", json.loads(match["quoted"], strict=False)
    if match["rest"] is not None:
        return "until", match["rest"]
    name, _, value = match["word"].partition(":")
    if name == "when":
        if (test := _TEST.fullmatch(value)) is None:
            raise ValueError(f"Invalid gate test: '{value}'. Write EXPERT>UNITS, EXPERT<=UNITS, or median for UNITS.")
        level = "above" if test["sign"] == ">" else "at_most"
        return "gates", {"run": test["run"], "expert": test["expert"], level: test["level"]}
    if name in ("prompt", "generated") and not value:
        return "scope", name
    if name in _COUNTED:
        return name, value
    raise ValueError(f"Unknown clause: '@{match['word']}'. Use {CLAUSES}.")


def format_edit(edit: Mapping[str, Any]) -> str:
    """Return the compact text of an edit's fields, as ``Edit.model_dump`` gives them."""
    run = f"{edit['run']}/" if edit.get("run") else ""
    strength = "" if edit["mode"] == "ablate" else f":{_number(edit['strength'])}"
    condition, clauses = edit.get("when") or {}, []
    for test in condition.get("gates", ()):
        tested = f"{test['run']}/" if test.get("run") else ""
        sign, level = (">", test["above"]) if test.get("above") is not None else ("<=", test["at_most"])
        clauses.append(f"when:{tested}{test['expert']}{sign}{level if level == 'median' else _number(level)}")
    if condition.get("scope", "all") != "all":
        clauses.append(condition["scope"])
    clauses += [f"{name}:{condition[name]}" for name in _COUNTED if condition.get(name) is not None]
    if condition.get("until") is not None:
        clauses.append(f"until:{json.dumps(condition['until'])}")
    return f"{run}{edit['expert']}:{edit['mode']}{strength}" + "".join(f"@{clause}" for clause in clauses)


def _number(value: float) -> str:
    return repr(value).removesuffix(".0")


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
    def _check_one_level(self) -> Self:
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
    def _check_scope(self) -> Self:
        if self.scope == "prompt" and (self.first, self.until, self.ramp, self.fade) != (None,) * 4:
            raise ValueError("first, until, ramp and fade count generated tokens, so scope cannot be prompt")
        return self


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
        tested = [test.run for test in self.when.gates] if self.when else []
        return tuple(name for name in (self.run, *tested) if name is not None)

    def experts(self, steered: str) -> tuple[tuple[str, int], ...]:
        own = self.run or steered
        tested = [(test.run or own, test.expert) for test in self.when.gates] if self.when else []
        return ((own, self.expert), *tested)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return parse_edit(value) if isinstance(value, str) else value

    def __str__(self) -> str:
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


class StrengthSweepConfig(SteeringConfig):
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
