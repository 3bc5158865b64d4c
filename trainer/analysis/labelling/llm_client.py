"""Client for an OpenAI-compatible endpoint that answers in JSON. Every failure raises an exception."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from mxd.trainer.errors import UserError

ATTEMPTS = 3
RETRY_SECONDS = 1.0
MAX_ANSWER_BYTES = 1 << 20


class EndpointError(UserError):
    """The endpoint cannot be reached or returned an error."""


class AnswerError(UserError):
    """The language model's answer does not have the requested form."""


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint and one of its language models."""

    url: str
    """Base URL, such as http://127.0.0.1:11434/v1."""
    language_model: str
    """Name of the language model at the endpoint."""
    key: str | None = None
    """API key; None sends no authorisation header."""
    timeout_seconds: float = 120.0
    """Timeout per attempt."""

    def ask(self, instruction: str, question: str) -> dict[str, Any]:
        """Ask a question and return the answer's JSON object. Connection and server errors are retried.

        Raises:
            EndpointError: the endpoint cannot be reached or returned an error.
            AnswerError: the answer contains no JSON object.
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
        url = f"{self.url.rstrip('/')}/chat/completions"
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(RETRY_SECONDS * 2 ** (attempt - 1))
            try:
                request = urllib.request.Request(url, body, headers)
                with urllib.request.urlopen(request, timeout=self.timeout_seconds) as response:
                    content: bytes = response.read(MAX_ANSWER_BYTES)
                    return content
            except urllib.error.HTTPError as error:
                problem = f"{error.code} {error.reason}"
                error.close()
                # Other client errors would repeat.
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, ValueError) as error:
                problem = str(getattr(error, "reason", error))
        raise EndpointError(f"No answer from {url}: {problem}. Check that the endpoint is running, then try again.")

    def _content(self, answer: bytes) -> str:
        try:
            content = json.loads(answer)["choices"][0]["message"]["content"]
        except (ValueError, RecursionError, KeyError, IndexError, TypeError) as error:
            raise EndpointError(
                f"{self.url} is not an OpenAI-compatible endpoint. Give the part of its URL before /chat/completions."
            ) from error
        return str(content)


def json_object(text: str) -> dict[str, Any]:
    """Parse the first JSON object in a text.

    Raises:
        AnswerError: the text contains no JSON object.
    """
    start = text.find("{")
    try:
        parsed, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise AnswerError(f"The answer contains no JSON object: {text[:120]!r}.")
    return parsed
