"""The shape of every answer: result, control, sample size."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

NO_CONTROL = "No control: the answer lists what is stored and claims no effect."


class Answer(BaseModel):
    """Answer of a tool."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    result: dict[str, Any]
    """The answer itself."""
    control: dict[str, Any] | str
    """The same measure on a control, such as a random expert; a sentence where there is no measure."""
    sample: dict[str, Any]
    """Number of tokens, examples or texts that the answer rests on."""
