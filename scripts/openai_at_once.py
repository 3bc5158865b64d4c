"""Send many streamed chats and completions with different edits to a server at once, with OpenAI's unmodified client.

    .venv/bin/mxd demo --port 8000
    .venv/bin/python scripts/openai_at_once.py http://127.0.0.1:8000

Each request is first sent alone. The exit code is 1 if a text differs or a request fails.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any

import openai

EDITS = ((), ("{expert}:add:6",), ("{expert}:add:6@first:8",), ("{expert}:add:6@generated@ramp:8",))
PROMPT = "It was a long day, and in the evening"
MESSAGES = [{"role": "user", "content": "What did you do in the evening?"}]


@dataclass(frozen=True)
class OpenAIAtOnce:
    """Texts of all requests at once, compared with each alone."""

    requests: int
    wrong: int
    """Texts that differ from the text of the same request alone."""
    failures: tuple[str, ...]
    """Errors of requests that failed although the client retries refused ones."""
    seconds_alone: float
    """Time of all requests in sequence."""
    seconds_at_once: float
    tokens: int
    """New tokens of all texts at once."""


async def measure(url: str, run: str, expert: int, requests: int, tokens: int) -> OpenAIAtOnce:
    """Send every request alone, then all at once, and compare the texts."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=600) as client:
        bodies = [_body(run, expert, number, tokens) for number in range(requests)]
        started = time.perf_counter()
        alone = [await _text(client, body) for body in bodies]
        between = time.perf_counter()
        together = await asyncio.gather(*(_text(client, body) for body in bodies), return_exceptions=True)
        ended = time.perf_counter()
    failures = tuple(repr(text)[:200] for text in together if isinstance(text, BaseException))
    wrong = sum(text != own for text, own in zip(together, alone, strict=True)) - len(failures)
    return OpenAIAtOnce(requests, wrong, failures, between - started, ended - between, requests * tokens)


def _body(run: str, expert: int, number: int, tokens: int) -> dict[str, Any]:
    """Arguments of a request: every other one is a chat."""
    edits = [edit.format(expert=expert) for edit in EDITS[number // 2 % len(EDITS)]]
    asked = {"messages": MESSAGES} if number % 2 else {"prompt": PROMPT}
    return {"model": run, **asked, "max_tokens": tokens, "seed": number, "extra_body": {"edits": edits}}


async def _text(client: openai.AsyncOpenAI, body: dict[str, Any]) -> str:
    if "messages" in body:
        stream = await client.chat.completions.create(**body, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    stream = await client.completions.create(**body, stream=True)
    return "".join([chunk.choices[0].text async for chunk in stream])


def main() -> int:
    """Measure, print and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--run", default="smollm2-l22")
    parser.add_argument("--expert", type=int, default=46)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=24)
    given = parser.parse_args()
    measured = asyncio.run(measure(given.url, given.run, given.expert, given.requests, given.tokens))
    print(f"{measured.requests} requests at once: {measured.wrong} wrong, {len(measured.failures)} failed")
    print(f"{measured.seconds_at_once:.1f} s at once, {measured.seconds_alone:.1f} s one by one")
    print(f"At most {measured.tokens} tokens")
    for failure in sorted(set(measured.failures)):
        print(f"  {failure}")
    return 1 if measured.wrong or measured.failures else 0


if __name__ == "__main__":
    sys.exit(main())
