"""Cursors: where the last page of a list ended, as an opaque word for the client."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backend.errors import CursorError
from backend.schemas import ExpertSort, Order

Id = Annotated[int, Field(ge=0, lt=2**31)]


class Cursor(BaseModel):
    """Base of all cursors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def encode(self) -> str:
        """As it goes into an address."""
        return base64.urlsafe_b64encode(self.model_dump_json().encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, word: str) -> Self:
        """Read what ``encode`` wrote.

        Raises:
            CursorError: it is something else.
        """
        try:
            return cls.model_validate_json(base64.b64decode(word + "=" * (-len(word) % 4), b"-_", validate=True))
        except (ValidationError, binascii.Error, ValueError) as error:
            raise CursorError("The cursor is not one that this list gave out; begin at its first page.") from error


class ExpertCursor(Cursor):
    """The last expert of a page, under the order that it was listed in."""

    sort: ExpertSort
    order: Order
    value: Annotated[float, Field(allow_inf_nan=False)]
    expert: Id


class ContextCursor(Cursor):
    """The last context of a page."""

    interval: Id
    rank: Id
