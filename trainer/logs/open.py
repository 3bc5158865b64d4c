"""From the name of a place for metrics to the module that knows it."""

from __future__ import annotations

from importlib import import_module

from trainer.errors import UserError
from trainer.logs.base import LogName, OpenLog


def log_to(name: LogName) -> OpenLog:
    """What begins a log in the place of this name.

    Raises:
        UserError: its package is not installed.
    """
    try:
        module = import_module(f"trainer.logs.to_{name}")
    except ImportError as error:
        raise UserError(f"{name} is not installed; pip install 'mxd-explorer[{name}]', or leave out --log.") from error
    opened: OpenLog = module.open_log
    return opened
