"""Overridden methods of other libraries' classes, which are checked when the class is defined."""

from __future__ import annotations

from typing import TypeVar

from mxd.trainer.errors import TESTED_VERSIONS, UserError

Kind = TypeVar("Kind", bound=type)


def check_overrides(kind: Kind) -> Kind:
    """Class decorator: check that every method marked with ``typing_extensions.override`` overrides one.

    A library that renames a method would otherwise never call ours.

    Raises:
        UserError: no base class has such a method.
    """
    for name, method in vars(kind).items():
        if getattr(method, "__override__", False) and not any(name in vars(base) for base in kind.__mro__[1:]):
            library = kind.__mro__[1].__module__.partition(".")[0]
            raise UserError(f"{kind.__mro__[1].__name__} of the installed {library} has no {name}. {TESTED_VERSIONS}")
    return kind
