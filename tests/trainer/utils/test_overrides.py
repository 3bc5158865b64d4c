"""A method that a library has renamed is reported when the class that overrides it is defined."""

from __future__ import annotations

import pytest
from typing_extensions import override

from mxd.trainer.errors import UserError, check_overrides


class Base:
    def kept(self) -> int:
        return 0


def test_overrides_are_checked() -> None:
    @check_overrides
    class Fine(Base):
        @override
        def kept(self) -> int:
            return 1

    assert Fine().kept() == 1
    with pytest.raises(UserError, match="Base of the installed tests has no renamed"):

        @check_overrides
        class Broken(Base):
            @override
            def renamed(self) -> int:  # type: ignore[misc]  # what the check is for
                return 1
