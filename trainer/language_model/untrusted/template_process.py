"""A process that renders chat templates. A template comes with a model and may loop for ever or fill the memory.

The process has a memory limit, except on macOS and Windows, and a watchdog thread ends it if a template takes too long.
It imports no torch, and starts when the first chat is formatted. Requests and answers are JSON documents, one per line.
"""

import atexit
import faulthandler
import json
import subprocess
import sys
from threading import Lock
from typing import IO, Any

from mxd.trainer.language_model.untrusted.tokenizer_probe import set_limits

LIMIT_SECONDS = 5.0
"""Time for one chat. Real templates take milliseconds."""
LIMIT_BYTES = 2 << 30
"""Address space of the process."""
LONGEST_TEXT = 4_000_000


class TemplateError(ValueError):
    """The template fails, or takes too much time or memory."""


class TemplateProcess:
    """Starts the process when it is needed, and again after a template has ended it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, request: dict[str, Any]) -> str:
        """Return the text of a chat; ``request`` has the arguments of ``render_jinja_template``. Raises TemplateError
        if the template fails, or takes too much time or memory."""
        with self._lock:
            answer = self._ask(json.dumps(request).encode() + b"\n")
            if not answer:
                self.close()
        if not answer:
            raise TemplateError(f"it takes more than {LIMIT_SECONDS:g} seconds or too much memory")
        reply = json.loads(answer)
        if "error" in reply:
            raise TemplateError(str(reply["error"]))
        return str(reply["text"])

    def _ask(self, line: bytes) -> bytes:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            command = [sys.executable, "-m", __spec__.name, str(LIMIT_SECONDS)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(line)
            stdin.flush()
        except BrokenPipeError:
            return b""
        return stdout.readline()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


TEMPLATES = TemplateProcess()
atexit.register(TEMPLATES.close)


def answer_requests(requests: IO[str], answers: IO[str], limit_seconds: float) -> None:
    """Render one request per line until the other process ends."""
    from transformers.utils.chat_template_utils import render_jinja_template

    for line in requests:
        # A thread in C, which a template that holds the interpreter's lock cannot stop.
        faulthandler.dump_traceback_later(limit_seconds, exit=True)
        try:
            rendered: Any = render_jinja_template(**json.loads(line))  # its annotation, str, is wrong
            (text,), _ = rendered
            answer = {"text": text} if len(text) <= LONGEST_TEXT else {"error": "its text is too long"}
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    set_limits({"RLIMIT_AS": LIMIT_BYTES})
    answer_requests(sys.stdin, sys.stdout, float(sys.argv[1]))
