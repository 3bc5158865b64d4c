"""Logging to stderr, as text or as JSON lines, with a limit on repeated problems."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mxd.backend.api.middleware import REQUEST_LOG
from mxd.backend.settings import LogFormat

REPEATS_LOGGED = 5
"""Problems of one kind that are logged per period."""
PERIOD_SECONDS = 60.0
KINDS_REMEMBERED = 1_000


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON lines, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON object without line breaks."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


@dataclass
class _Kind:
    """Records of one kind in the current period."""

    began: float
    count: int = 0


class RepetitionFilter(logging.Filter):
    """Drops problems that clients can cause again and again, so that they cannot fill the disk. The last record that
    passes in a period says so. Lines of the request log are not limited."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        key = (record.name, str(record.msg).partition("\n")[0][:200])
        kind = self._kinds.get(key)
        if kind is None or now - kind.began > PERIOD_SECONDS:
            if len(self._kinds) >= KINDS_REMEMBERED:
                self._kinds.clear()
            kind = self._kinds[key] = _Kind(now)
        kind.count += 1
        if kind.count == REPEATS_LOGGED:
            record.msg = f"{record.msg} (further ones are not logged for {PERIOD_SECONDS:.0f} s)"
        return kind.count <= REPEATS_LOGGED


def log_to_stderr(how: LogFormat) -> None:
    """Log to stderr: only problems, or every request too."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if how == "json" else plain)
    handler.addFilter(RepetitionFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(REQUEST_LOG).setLevel(logging.WARNING if how == "quiet" else logging.INFO)
