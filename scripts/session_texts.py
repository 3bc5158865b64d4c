"""Write the texts of every shipped session, and the price of its edits, which its card and its page show.

    python scripts/session_texts.py http://127.0.0.1:8000 data/demo

Generates them on a running ``mxd demo`` and writes ``session_texts.json`` (run -> session -> text and result). Adds
what the file lacks; delete a session from it to generate its texts again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.request import Request, urlopen

LENGTH = 240
"""Characters of the beginning of a text."""
VARIANTS = ("baseline", "steered")


def main() -> None:
    """Generate every text and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="address of the running demo")
    parser.add_argument("data", type=Path)
    words = parser.parse_args()
    file = words.data / "session_texts.json"
    shipped: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for run, sessions in json.loads((words.data / "sessions.json").read_text("utf-8")).items():
        for name, steering in sessions.items():
            url = f"{words.url}/api/runs/{run}"
            known = shipped.setdefault(run, {}).get(name) or generated(f"{url}/steering", steering)
            if "turns" not in steering and "control" not in known["result"]:
                known["result"] |= controlled(url, steering)
            shipped[run][name] = known
            print(f"{run}, {name}: {known['text']!r}", file=sys.stderr)
            content = json.dumps(shipped, ensure_ascii=False, separators=(",", ":"))
            # A line per session, so that a change of one is readable.
            file.write_text(content.replace('},"', '},\n"') + "\n", "utf-8")


def generated(url: str, steering: dict[str, Any]) -> dict[str, Any]:
    """Return the beginning of the first steered text, and what a session keeps of both."""
    events = streamed(url, steering)
    texts = {variant: [shown_tokens(events, variant, is_chat="turns" in steering)] for variant in VARIANTS}
    kl = fmean(event["kl"] for event in events if event.get("variant") == "steered")
    price = streamed(f"{url}/price", {"edits": steering["edits"]})[-1]["price"]
    text = "".join(token["text"] for token in texts["steered"][0]).strip()
    return {
        "text": text if len(text) <= LENGTH else text[:LENGTH].rsplit(" ", 1)[0],
        "result": {**texts, "kl_nats": round(kl, 4), "price": rounded(price)},
    }


def controlled(url: str, steering: dict[str, Any]) -> dict[str, Any]:
    """Return the text with the same edits of random experts of similar density, and these edits."""
    edits = [edit | {"expert": random_expert(url, edit["expert"])} for edit in steering["edits"]]
    events = streamed(f"{url}/steering", steering | {"edits": edits})
    return {"control": [shown_tokens(events, "steered", is_chat=False)], "control_edits": edits}


def random_expert(url: str, expert: int) -> int:
    """Return the expert with which the dashboard compares another one."""
    with urlopen(f"{url}/experts/{expert}") as answer:
        found: int = json.load(answer)["random_expert"]
    return found


def streamed(url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a streamed answer."""
    with urlopen(Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})) as answer:
        lines = [line.decode() for line in answer]
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def shown_tokens(events: list[dict[str, Any]], variant: str, is_chat: bool) -> list[dict[str, Any]]:
    """Return the tokens of the first text without its end-of-text token; a chat's reply ends with a sentence."""
    tokens = [event for event in events if event.get("variant") == variant and event["reason"] != "end-of-text"]
    ends = [number for number, token in enumerate(tokens, 1) if token["text"].rstrip().endswith((".", "!", "?"))]
    return [
        {"id": token["id"], "text": token["text"], "delta_log_probability": round(token["delta_log_probability"], 3)}
        for token in tokens[: ends[-1] if is_chat and ends else None]
    ]


def rounded(price: Any) -> Any:
    """Return a price with five decimals."""
    if isinstance(price, dict):
        return {name: rounded(value) for name, value in price.items()}
    return round(price, 5) if isinstance(price, float) else price


if __name__ == "__main__":
    main()
