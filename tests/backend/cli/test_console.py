"""Progress lines, and requests to stop at arbitrary moments."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Any

import pytest

from mxd.backend.cli.console import StopRequest
from tests.backend.cli.words import Capture


class Interrupting(io.RawIOBase):
    """A file that sends SIGTERM to its process on the first write."""

    asked = False

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        if not self.asked:
            self.asked = True
            signal.raise_signal(signal.SIGTERM)
        return len(content)


def test_a_signal_during_a_write_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopRequest()
    with io.TextIOWrapper(io.BufferedWriter(Interrupting()), encoding="utf-8") as written, stop.listening():
        monkeypatch.setattr(sys, "stderr", written)
        written.write("Indexing\n")
        written.flush()
        assert stop()
        assert stop.exit_code == 143


def test_the_first_interrupt_requests_a_stop_and_the_second_raises(capsys: Capture) -> None:
    stop = StopRequest()
    before = signal.getsignal(signal.SIGTERM)
    with stop.listening():
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        assert stop.exit_code == 143
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before
