"""Metrics of fitting where people already watch theirs: a file for each place, imported only when it is asked for."""

from trainer.logs.base import LogName, MetricLog, OpenLog, no_log
from trainer.logs.open import log_to

__all__ = ["LogName", "MetricLog", "OpenLog", "log_to", "no_log"]
