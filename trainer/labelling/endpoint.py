"""A language model behind an OpenAI-compatible endpoint, asked for JSON. A failure is an exception, never an answer."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from trainer.errors import UserError

ATTEMPTS = 3
SECONDS_BETWEEN = 1.0
LONGEST_ANSWER = 1 << 20


class EndpointError(UserError):
    """The endpoint cannot be reached, or refuses."""


class AnswerError(UserError):
    """The language model has answered with something that is not what was asked for."""


@dataclass(frozen=True)
class Endpoint:
    """Where to ask, and whom."""

    url: str
    """Base address, such as http://127.0.0.1:11434/v1."""
    language_model: str
    key: str | None = None
    timeout_seconds: float = 120.0

    def ask(self, instruction: str, question: str) -> dict[str, Any]:
        """One question, answered as a JSON object.

        Raises:
            EndpointError: no answer has come, after some attempts.
            AnswerError: the answer holds no JSON object.
        """
        body = {
            "model": self.language_model,
            "messages": [{"role": "system", "content": instruction}, {"role": "user", "content": question}],
            "temperature": 0,
        }
        return json_object(self._content(self._post(json.dumps(body).encode())))

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        address = f"{self.url.rstrip('/')}/chat/completions"
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(SECONDS_BETWEEN * 2 ** (attempt - 1))
            try:
                request = urllib.request.Request(address, body, headers)
                with urllib.request.urlopen(request, timeout=self.timeout_seconds) as answer:
                    read: bytes = answer.read(LONGEST_ANSWER)
                    return read
            except urllib.error.HTTPError as error:
                problem = f"{error.code} {error.reason}"
                error.close()
                # What was refused for what it is will be refused again.
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, ValueError) as error:
                problem = str(getattr(error, "reason", error))
        raise EndpointError(f"The endpoint {address} gave no answer ({problem}); see that it runs, and go on.")

    def _content(self, answer: bytes) -> str:
        try:
            content = json.loads(answer)["choices"][0]["message"]["content"]
        except (ValueError, RecursionError, KeyError, IndexError, TypeError) as error:
            raise EndpointError(
                f"The endpoint {self.url} does not answer as an OpenAI-compatible one does; give the address that ends "
                "before /chat/completions."
            ) from error
        return str(content)


def json_object(text: str) -> dict[str, Any]:
    """The first JSON object in a text that may have words around it.

    Raises:
        AnswerError: there is none.
    """
    start = text.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise AnswerError(f"The language model answered without a JSON object: {text[:120]!r}.")
    return found
