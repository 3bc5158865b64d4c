"""Write the beginning of the steered text of every shipped session, which its card shows.

    python scripts/session_texts.py http://127.0.0.1:8000 data/demo

Generates the texts on a running ``mxd demo`` and writes ``session_texts.json`` (run -> session -> text).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

LENGTH = 240
"""Characters of a text."""


def main() -> None:
    """Generate every text and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="address of the running demo")
    parser.add_argument("data", type=Path)
    words = parser.parse_args()
    texts: dict[str, dict[str, str]] = {}
    for run, shipped in json.loads((words.data / "sessions.json").read_text("utf-8")).items():
        texts[run] = {}
        for name, steering in shipped.items():
            sampling = {"max_tokens": 64, **steering.get("sampling", {})}
            texts[run][name] = steered_text(f"{words.url}/api/runs/{run}/steering", {**steering, "sampling": sampling})
            print(f"{run}, {name}: {texts[run][name]!r}", file=sys.stderr)
    content = json.dumps(texts, ensure_ascii=False, indent=1)
    (words.data / "session_texts.json").write_text(content + "\n", "utf-8")


def steered_text(url: str, steering: dict[str, Any]) -> str:
    """Return the beginning of the first steered text, up to a whole word."""
    request = Request(url, json.dumps(steering).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        lines = [line.decode().removeprefix("data: ") for line in answer if line.startswith(b"data: ")]
    events = [json.loads(line) for line in lines]
    tokens = [event for event in events if event.get("variant") == "steered" and event["sample"] == 0]
    text = "".join(token["text"] for token in tokens if not token["text"].startswith("<|")).strip()
    return text if len(text) <= LENGTH else text[:LENGTH].rsplit(" ", 1)[0]


if __name__ == "__main__":
    main()
