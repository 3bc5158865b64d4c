"""Pagination cursors: the end of a page as an opaque string."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mxd.backend.errors import CursorError
from mxd.backend.schemas.experts import Order, PageSort

Id = Annotated[int, Field(ge=0, lt=2**31)]


class Cursor(BaseModel):
    """Base class of all cursors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def encode(self) -> str:
        """Return the cursor as a URL-safe string."""
        return base64.urlsafe_b64encode(self.model_dump_json().encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, word: str) -> Self:
        """Decode the output of ``encode``. Raises CursorError if it is invalid."""
        try:
            return cls.model_validate_json(base64.b64decode(word + "=" * (-len(word) % 4), b"-_", validate=True))
        except (ValidationError, binascii.Error, ValueError) as error:
            raise CursorError("Invalid cursor. Start at the first page.") from error


class ExpertCursor(Cursor):
    """Last expert of a page, with the sort order."""

    sort: PageSort
    order: Order
    value: Annotated[float, Field(allow_inf_nan=False)]
    expert: Id


class ExampleCursor(Cursor):
    """Last example of a page."""

    bin: Id
    rank: Id
