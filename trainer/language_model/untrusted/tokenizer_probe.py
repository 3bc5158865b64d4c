"""Loads a tokenizer and uses it on hostile texts, within limits of time and memory. Prints what is wrong, if anything.

``tokenizer_check`` runs this file as a program. It imports nothing of this package, so that it starts quickly.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

TOKENIZER = "tokenizer.json"
LIMIT_SECONDS = 20
"""Processor time of the whole check."""
LIMIT_BYTES = 6 << 30
"""Address space of the process."""
MOST_GROWTH = 64
"""Characters that one character of a text may become."""
LONGEST_TOKEN = 4096
LETTERS = "".join(map(chr, range(32, 127))) + "\n\t\u00e9\u4e2d\U0001f642\u0301\u2581\u0120"


def find_problem(paths: list[str]) -> str:
    """Return what is wrong with a tokenizer's files; empty if nothing is."""
    documents: dict[str, Any] = {}
    for path in map(Path, paths):
        if path.suffix == ".json":
            try:
                documents[path.name] = json.loads(path.read_text("utf-8"))
            except RecursionError:
                return f"{path.name} is nested too deeply"
            except ValueError:
                return f"{path.name} is not JSON"
    if not isinstance(documents.get("tokenizer.json"), dict):
        return "tokenizer.json is not a JSON object" if "tokenizer.json" in documents else ""
    return _growth(documents["tokenizer.json"]) or _use(
        next(path for path in paths if Path(path).name == "tokenizer.json")
    )


def _growth(tokenizer: dict[str, Any]) -> str:
    """Return what is wrong with a tokenizer whose steps make every text longer."""
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        growth, waiting = 1.0, [tokenizer.get(name)]
        while waiting:  # a step may be a sequence of steps
            step = waiting.pop()
            if isinstance(step, dict):
                growth *= _factor(step)
                waiting += chain.from_iterable(value for value in step.values() if isinstance(value, list))
        if growth > MOST_GROWTH:
            return f"its {name} makes a text more than {MOST_GROWTH} times as long"
    return ""


def _factor(step: dict[str, Any]) -> float:
    content = step.get("content")
    if step.get("type") != "Replace" or not isinstance(content, str):
        return 1.0
    pattern = step.get("pattern")
    replaced = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(replaced, str) and replaced:
        return max(1.0, len(content) / len(replaced))
    return max(1.0, 1.0 + len(content))  # a regular expression may match nothing, between all characters


def _use(path: str) -> str:
    """Load a tokenizer, and encode and decode texts that take long if anything does."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # noqa: BLE001 - tokenizers raises this class itself
        return f"{TOKENIZER} is not a tokenizer ({str(error).splitlines()[0][:200]})"
    longest = max(map(len, tokenizer.get_vocab()), default=0)
    if longest > LONGEST_TOKEN:
        return f"it has a token of {longest:,} characters"
    for text in (LETTERS * 40, *(letter * 2000 for letter in LETTERS)):
        ids = tokenizer.encode(text).ids
        if len(tokenizer.decode(ids)) > MOST_GROWTH * len(text):
            return "it makes a text grow without bound"
    return ""


def set_limits(limits: Mapping[str, int]) -> None:
    """Limit this process as far as the system can: macOS rejects ``RLIMIT_AS``, and Windows has no such limits."""
    try:
        import resource
    except ImportError:
        return
    for name, value in limits.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (value, value))


if __name__ == "__main__":
    set_limits({"RLIMIT_AS": LIMIT_BYTES, "RLIMIT_CPU": LIMIT_SECONDS, "RLIMIT_CORE": 0})
    sys.stdout.write(find_problem(json.load(sys.stdin)) + "\n")
