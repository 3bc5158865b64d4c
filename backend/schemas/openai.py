"""Requests to the OpenAI-compatible endpoints, with edits as further fields. Answers have OpenAI's shapes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from mxd.trainer.config.base import Size
from mxd.trainer.config.steering import Edit, Scope, SteeringMode

DEFAULT_TOKENS = 512
"""Largest number of new tokens if a request names none."""
WITHOUT_EFFECT = frozenset(
    {"user", "metadata", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"}
)
"""OpenAI parameters that do not concern the text; they are accepted and not used."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""OpenAI parameters that are not supported -> their values without effect, which are accepted."""
Text = Annotated[str, Field(max_length=200_000)]
Stop = Annotated[str, Field(min_length=1, max_length=200)]


class Tolerant(BaseModel):
    """Base class of bodies of requests, which may have fields that are not known here."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class StreamOptions(Tolerant):
    """Options of a stream."""

    include_usage: bool = False
    """Send the token counts in a last chunk."""


class CompletionSettings(Tolerant):
    """Settings that both endpoints share. The last six are extensions; clients send them in ``extra_body``."""

    model_config = ConfigDict(extra="allow")

    model: Annotated[str, Field(min_length=1, max_length=300)]
    """Name of a run, or name or id of a saved session, whose edits and sampling settings then are the defaults."""
    stream: bool | None = None
    """Send the text as server-sent events. Default: false."""
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Maximum number of new tokens. A text also ends at the end of the model's context. Default: 512."""
    temperature: Annotated[float, Field(ge=0, le=5)] | None = None
    """Sampling temperature; 0 is greedy decoding. Default: 1."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus sampling threshold. Default: 1."""
    n: Annotated[int, Field(ge=1, le=16)] | None = None
    """Number of texts. Default: 1."""
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    """Seed; the same request with the same seed gives the same text. Default: random."""
    stop: Stop | Annotated[tuple[Stop, ...], Field(max_length=8)] | None = None
    """Text or texts that end the generated text, which does not contain them. Default: none."""
    edits: Annotated[tuple[Edit, ...], Field(max_length=64)] | None = None
    """Edits to experts, as objects or as compact text such as ``12:add:4@first:20``. Default: none."""
    mode: SteeringMode | None = None
    """How edits are applied. Default: residual."""
    scope: Scope | None = None
    """Tokens that the edits change. Default: all."""
    k: Size | None = None
    """Number of active experts per token. Default: the run's K."""
    top_k: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Number of most probable tokens to sample from; 0 is all. Default: 0."""
    repetition_penalty: Annotated[float, Field(ge=0.5, le=3)] | None = None
    """Values above 1 discourage repeated tokens. Default: 1."""

    @model_validator(mode="after")
    def _check_supported(self) -> CompletionSettings:
        for name, value in (self.model_extra or {}).items():
            if name not in WITHOUT_EFFECT and value is not None and value not in NEUTRAL.get(name, ()):
                raise PydanticCustomError(
                    "unsupported_parameter",
                    "Unsupported parameter: '{name}'. Omit it. Supported: {known}.",
                    {"name": name, "known": ", ".join(type(self).model_fields)},
                )
        return self


class TextPart(Tolerant):
    """A part of a message."""

    type: Literal["text"]
    text: Text


class Message(Tolerant):
    """A chat message."""

    role: Literal["system", "developer", "user", "assistant"]
    """Role of the author. developer counts as system."""
    content: Text | Annotated[tuple[TextPart, ...], Field(max_length=100)]
    """Text of the message, or its parts."""

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatCompletionRequest(CompletionSettings):
    """A chat to continue with the chat template of the language model's tokenizer."""

    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=200)]
    """Messages, oldest first. A last message of the assistant is continued."""
    max_completion_tokens: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Newer name of ``max_tokens``, which it overrides."""


class TextCompletionRequest(CompletionSettings):
    """A text to continue."""

    prompt: Text | Annotated[tuple[Text, ...], Field(min_length=1, max_length=1)]
    """Text to continue, or a list of one."""
